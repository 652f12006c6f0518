"""From a RunConfig to the objects of the loop."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space

from swell import ranks
from swell.algorithms.ess import ESSPPO
from swell.algorithms.ppg import PPG, PPGEWMA
from swell.algorithms.ppo import PPO
from swell.algorithms.ppo_ewma import PPOEWMA
from swell.algorithms.pqn import PQN
from swell.batch.noise_scale import GradientNoiseScale
from swell.batch.rules import reference_batch
from swell.batch.scalers import (
    AdaptiveScaler,
    FixedScaler,
    NoiseScaleScaler,
    Points,
    RampScaler,
    batch_plan,
    evenly_spaced,
    steps_of,
)
from swell.batch.signals import BehavioralDivergence, EffectiveSampleSize, KLDivergence
from swell.collect.collector import Collector
from swell.config.imports import imported_maker
from swell.config.run_config import RunConfig
from swell.config.seeds import derive_seed
from swell.config.validation import is_import
from swell.envs import VectorEnv, make_envs
from swell.errors import ConfigError
from swell.measurement import Measurement
from swell.memory.plan import MemoryPlan
from swell.memory.planner import fit_into_memory
from swell.networks.parts import structure_of
from swell.networks.q_networks import Parts, resolve_network
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import read_json
from swell.types import Learner, Scaler, Signal, most_rows

SMALL_NETWORKS = ("mlp", "minatar-cnn")
"""Whose steps are so short that handing work over, to threads or to processes, takes longer than it saves."""
LEARNERS = {"pqn": PQN, "ppo": PPO, "ppo-ewma": PPOEWMA, "ppg": PPG, "ppg-ewma": PPGEWMA, "ess": ESSPPO}


@dataclass(frozen=True)
class BuiltRun:
    """The objects that `train` takes, and what was decided in making them."""

    collector: Collector
    learner: Learner
    measurement: Measurement
    scaler: Scaler
    network_name: str
    device: torch.device
    threads: int
    memory_plan: MemoryPlan

    @property
    def path(self) -> str:
        """From a loss to a step: `compiled` or `autograd`."""
        return getattr(self.learner, "path", "autograd")

    @property
    def longest_horizon(self) -> int:
        return self.memory_plan.longest_horizon

    def state_dict(self) -> dict[str, Any]:
        return {
            "learner": self.learner.state_dict(),
            "collector": self.collector.state_dict(),
            "measurement": self.measurement.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> bool:
        """True if the envs go on where they were."""
        self.learner.load_state_dict(state["learner"])
        self.measurement.load_state_dict(state["measurement"])
        self.scaler.load_state_dict(state["scaler"])
        return self.collector.load_state_dict(state["collector"], resume_count)


def build(config: RunConfig, points: Points | None = None, decided: MemoryPlan | None = None) -> BuiltRun:
    """Everything a run needs. `points` and `decided` are what a run that goes on has found out and decided before."""

    def prepare() -> tuple[torch.device, Points | None, tuple[VectorEnv, np.ndarray, MemoryPlan]]:
        device = resolve_device(config.device)
        found = ramp_points(config) if config.scaler == "ramp" and points is None else points
        own = replace(config, num_envs=ranks.own_share(config.num_envs, "num_envs"))
        longest, most = longest_horizon(config, found or ()), most_rows(config.total_env_steps, config.num_envs)
        return device, found, fit_into_memory(own, longest, device, training_envs, trial_parts, decided, most)

    device, points_found, (envs, observations, plan) = ranks.together(prepare)
    plan = ranks.first_says(plan)  # whose machine may have room for less
    fitting = plan.applied_to(config)
    return ranks.together(lambda: _built(fitting, device, points_found, envs, observations, plan))


def _built(
    config: RunConfig,
    device: torch.device,
    points: Points | None,
    envs: VectorEnv,
    observations: np.ndarray,
    plan: MemoryPlan,
) -> BuiltRun:
    parts: Parts = structure_of(envs.observation_space)["parts"]
    network_name = resolve_network(config.network, observation_shape(envs), parts)
    learner = make_learner(config, envs.observation_space, envs.action_space, device)
    is_compiled = getattr(learner, "path", "autograd") == "compiled"
    threads: int = getattr(learner, "threads", 1) if is_compiled else resolve_threads(config.threads, network_name)
    threads = own_threads(threads)
    torch.set_num_threads(1 if is_compiled else threads)  # what kernels leave to torch is too small for two
    buffered = min(plan.longest_horizon, most_rows(config.total_env_steps, config.num_envs))
    return BuiltRun(
        collector=Collector(envs, buffered, device, config.staleness, observations),
        learner=learner,
        measurement=make_measurement(config, device),
        scaler=make_scaler(config, points),
        network_name=network_name,
        device=device,
        threads=threads,
        memory_plan=plan,
    )


def training_envs(config: RunConfig) -> VectorEnv:
    """Of this process, as many as the config says."""
    threads = config.threads if ranks.is_alone() else own_threads(config.threads or os.cpu_count() or 1)
    first_env = ranks.place().rank * config.num_envs
    return make_envs(config, seed=derive_seed(config.seed, "envs"), threads=threads, first_env=first_env)


def own_threads(threads: int) -> int:
    """This process's part of those that its machine gives to the run."""
    return max(1, threads // ranks.place().local_count)


def observation_shape(envs: VectorEnv) -> tuple[int, ...]:
    return tuple(envs.observation_space.shape or ())


def make_learner(config: RunConfig, observation_space: Space, action_space: Space, device: torch.device) -> Learner:
    try:
        return LEARNERS[config.algorithm](
            observation_space,
            action_space,
            config,
            reference=reference_batch(config),
            seed=config.seed,
            device=device,
            threads=config.threads,
        )
    except ConfigError as error:
        raise ConfigError(*(f"{config.env}: {fault}" for fault in error.faults)) from error


def make_measurement(config: RunConfig, device: torch.device) -> Measurement:
    reads_gradients = config.signal_name == "gradient_noise_scale"
    return Measurement(
        make_signal(config),
        config.measure_every,
        config.measure_unit,
        probe_states=config.probe_states,
        window="iteration" if reads_gradients else config.window,
        seed=derive_seed(config.seed, "probes"),
        device=device,
    )


def make_signal(config: RunConfig) -> Signal:
    match config.signal_name:
        case "behavioral_divergence":
            return BehavioralDivergence(config.action_tolerance)
        case "kl_divergence":
            return KLDivergence()
        case "effective_sample_size":
            return EffectiveSampleSize()
        case "gradient_noise_scale":
            seed = derive_seed(config.seed, "probes")
            return GradientNoiseScale(config.noise_microbatches, config.noise_averaging, config.micro_batch_size, seed)
        case name:
            return _own("signal", name, ("watch", "state_dict", "load_state_dict"))


def make_scaler(config: RunConfig, points: Points | None) -> Scaler:
    match config.scaler:
        case "fixed":
            return FixedScaler(config, num_envs=config.num_envs)
        case "ramp":
            return RampScaler(config, num_envs=config.num_envs, points=points)
        case "noise-scale":
            return NoiseScaleScaler(config, num_envs=config.num_envs)
        case "adaptive":
            return AdaptiveScaler(config, num_envs=config.num_envs)
        case name:
            methods = ("plan", "adjust", "state_dict", "load_state_dict")
            return _own("scaler", name, methods, config, num_envs=config.num_envs)


def _own(option: str, name: str, methods: Sequence[str], *arguments: Any, **named: Any) -> Any:
    """A part of the user's own. A class is asked for its methods first: without them it need not take our arguments."""
    make = imported_maker(name, option)
    made = make if isinstance(make, type) else make(*arguments, **named)
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ConfigError(
            f"{option} {name} must have {', '.join(f'{method}()' for method in missing)}; see docs/by-hand.md"
        )
    return make(*arguments, **named) if made is make else made


def ramp_points(config: RunConfig) -> list[tuple[float, float]]:
    """(progress, horizon) pairs: those of the run to replay, or evenly spaced ones."""
    if config.ramp_from is None:
        return evenly_spaced(config.ramp_horizons)
    directory = Path(config.ramp_from)
    rows = read_jsonl(directory / "metrics.jsonl")
    if not rows:
        raise ConfigError(f"ramp_from must be a run directory with a metrics.jsonl, got {config.ramp_from!r}")
    try:
        total = int(read_json(directory / "config.json")["config"]["total_env_steps"])
        started = [0, *(int(row["env_steps"]) for row in rows[:-1])]
        # A run's last rollout is cut to its total, so the plan is what `next_horizon` of the row before said.
        horizons: Sequence[float] = [float(rows[0]["horizon"]), *(float(row["next_horizon"]) for row in rows[:-1])]
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"ramp_from {config.ramp_from} has no whole log of a run in an env: {error}") from error
    if config.ramp_order == "shuffled":
        horizons = np.random.default_rng(derive_seed(config.seed, "horizons")).permutation(horizons).tolist()
        started = (np.cumsum([0, *horizons[:-1]]) * (total / np.sum(horizons))).tolist()
    return steps_of([(steps / total, float(horizon)) for steps, horizon in zip(started, horizons, strict=True)])


def longest_horizon(config: RunConfig, points: Points) -> int:
    """The horizon that buffers must hold; `points` are those of a ramp."""
    planned = (batch_plan(config, config.num_envs, horizon).horizon for _, horizon in points)
    return max(planned, default=config.longest_horizon)


def trial_parts(config: RunConfig, envs: VectorEnv) -> tuple[Learner, Measurement]:
    """What a dry run of one iteration needs."""
    cpu = torch.device("cpu")
    learner = make_learner(config, envs.observation_space, envs.action_space, cpu)
    return learner, make_measurement(config, cpu)


def resolve_device(name: str) -> torch.device:
    is_alone = ranks.is_alone()
    has_mps = torch.backends.mps.is_available() and is_alone  # over which processes cannot add up
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": has_mps}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available.get(name):
        raise ConfigError(f"device must be one that this machine has, got {name!r}; try --device auto")
    if name != "cuda" or is_alone:
        return torch.device(name)
    return own_gpu(ranks.place().local_rank, torch.cuda.device_count())


def own_gpu(local_rank: int, count: int) -> torch.device:
    """One for each process of this machine; never run, as no machine with several was at hand."""
    if local_rank >= count:
        raise ConfigError(f"device cuda needs a GPU for each process, and this machine has {count}; try --device cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def resolve_threads(threads: int, network_name: str) -> int:
    """Of torch's operations, on the autograd path, where small networks lose more by handing work over than they gain.

    MinAtar's gains on an idle machine, but where another process wants a core its threads wait for each other at every
    step, and it trains at a twentieth of its speed (docs/results/speed.md).
    """
    if threads > 0:
        return threads
    is_small = network_name in SMALL_NETWORKS or is_import(network_name)
    return 1 if is_small else (os.cpu_count() or 1)
