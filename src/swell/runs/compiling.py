"""Whether a run is long enough to wait for kernels to be compiled, and compiling them ahead of any run."""

import subprocess
import sys
import time

from swell.batch.scalers import batch_plan
from swell.config.learners import ComputePath
from swell.config.run_config import RunConfig
from swell.envs import env_family
from swell.errors import ConfigError
from swell.kernels.cache import are_cached, cache_directory
from swell.kernels.factory import can_compile
from swell.loop import train
from swell.presets import make_config
from swell.runs.build import build, resolve_device

STEPS_WORTH_COMPILING = 10_000
"""Gradient steps by which kernels have won back the time that compiling them takes: both scale with the processor."""
ACTS_PER_STEP = 6
"""So many times acting gain as much as one gradient step does."""
MAIN_KERNELS = (
    *("updates.q_passes", "updates.help_q_passes", "updates.policy_passes", "updates.help_policy_passes"),
    *("halves.dual_passes", "halves.help_dual_passes", "layers.backward", "rollouts.policy_rollout"),
)
"""Where these are, all are."""
SMALL_RUNS = (
    {"algorithm": "pqn", "backend": "gymnasium"},
    {"algorithm": "pqn", "backend": "compiled"},
    {"algorithm": "ppo", "backend": "gymnasium", "normalize_rewards": True},
    {"algorithm": "ppo", "backend": "compiled"},
    {"algorithm": "ppo", "backend": "compiled", "architecture": "shared"},
    {"algorithm": "ppo-ewma", "backend": "gymnasium"},
)
"""Between them they call every kernel, with every set of types that it has."""


def path_for(config: RunConfig) -> tuple[ComputePath, str | None]:
    """What `auto` stands for in a run that starts now, and a line about it if there is something to say."""
    if config.path == "autograd" or not _may_have_kernels(config) or not can_compile() or are_cached(MAIN_KERNELS):
        return config.path, None
    if config.path == "auto" and _steps_of(config) < STEPS_WORTH_COMPILING:
        return "autograd", "kernels are not compiled yet, and this run is too short to wait: `swell compile`, once"
    return config.path, "compiling kernels, once for this machine"


def compile_kernels() -> str:
    """Compiles whatever is not there yet; says how long it took, and where it is kept.

    In a process of its own: in the one that compiles them, kernels are linked otherwise than where they are read from
    the disk, and round otherwise. So all runs read them.
    """
    if not can_compile():
        raise ConfigError('kernels need the fast extra: pip install "swell-rl[fast]"')
    started = time.perf_counter()
    if not are_cached(MAIN_KERNELS):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "swell.runs.compiling"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise ConfigError(f"kernels cannot be compiled: {why}; try --path autograd")
    return f"kernels are compiled ({time.perf_counter() - started:.0f} s), in {cache_directory()}"


def _call_every_kernel() -> None:
    from swell.learning.fused import finish_helpers

    small = {"num_envs": 4, "scaler": "fixed", "horizon": 32, "epochs": 1, "minibatches": 1}
    for options in SMALL_RUNS:
        config = make_config("CartPole-v1", **small, **options, path="compiled", device="cpu", threads=2)
        parts = build(config)
        for _ in train(parts.collector, parts.learner, parts.measurement, parts.scaler, 2 * 4 * 32):
            pass
        parts.collector.envs.close()
    finish_helpers()


def _may_have_kernels(config: RunConfig) -> bool:
    """By what is known before there are envs; the learner itself has the last word."""
    is_plain = config.network in ("auto", "mlp", "minatar-cnn") and config.precision == "float32"
    has_screens = env_family(config.env) in ("atari", "procgen")
    return is_plain and not has_screens and resolve_device(config.device).type == "cpu"


def _steps_of(config: RunConfig) -> float:
    """Gradient steps of the whole run at its first horizon, and what acting weighs beside them."""
    horizon = config.min_horizon if config.adapts_horizon else config.horizon
    plan = batch_plan(config, config.num_envs, horizon)
    acts = config.total_env_steps / config.num_envs
    return acts / plan.horizon * plan.epochs * plan.minibatches + acts / ACTS_PER_STEP


if __name__ == "__main__":
    _call_every_kernel()
