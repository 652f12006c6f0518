"""Whether a run is long enough to wait for kernels to be compiled, and compiling them ahead of any run."""

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
MAIN_KERNELS = {"pqn": "updates.q_epoch", "ppo": "updates.policy_epoch"}
SMALL_RUNS = (
    {"algorithm": "pqn", "backend": "gymnasium"},
    {"algorithm": "pqn", "backend": "compiled"},
    {"algorithm": "ppo", "backend": "gymnasium", "normalize_rewards": True},
    {"algorithm": "ppo", "backend": "compiled"},
    {"algorithm": "ppo-ewma", "backend": "gymnasium"},
)
"""Between them they call every kernel, with every set of types that it has."""


def path_for(config: RunConfig) -> tuple[ComputePath, str | None]:
    """What `auto` stands for in a run that starts now, and a line about it if there is something to say."""
    if config.path != "auto" or not _may_have_kernels(config) or not can_compile():
        return config.path, None
    if are_cached([MAIN_KERNELS.get(config.algorithm, "layers.backward")]):
        return "auto", None
    if _steps_of(config) < STEPS_WORTH_COMPILING:
        return "autograd", "kernels are not compiled yet, and this run is too short to wait: `swell compile`, once"
    return "auto", "compiling kernels, once for this machine"


def compile_kernels() -> str:
    """Compiles whatever is not there yet; says how long it took, and where it is kept."""
    if not can_compile():
        raise ConfigError('kernels need the fast extra: pip install "swell-rl[fast]"')
    started = time.perf_counter()
    for options in SMALL_RUNS:
        small = {"num_envs": 2, "scaler": "fixed", "horizon": 4, "epochs": 1, "minibatches": 1, "path": "compiled"}
        parts = build(make_config("CartPole-v1", **small, **options, total_env_steps=16, device="cpu"))
        for _ in train(parts.collector, parts.learner, parts.measurement, parts.scaler, 16):
            pass
        parts.collector.envs.close()
    return f"kernels are compiled ({time.perf_counter() - started:.0f} s), in {cache_directory()}"


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
