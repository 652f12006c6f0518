"""From a RunConfig to the objects of the loop."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space

from swell.collect.collector import Collector
from swell.config.run_config import RunConfig
from swell.envs import EnvSettings, VectorEnv, make_envs
from swell.errors import ConfigError
from swell.runs.learners import AnyLearner, make_action_space, make_learner
from swell.memory.plan import Footprint, MemoryPlan, Needs, Rehearsed, memory_limit, needs_of, plan_memory
from swell.networks.q_networks import resolve_network
from swell.batch.noise_scale import GradientNoiseScale
from swell.memory.dry_run import rehearse
from swell.runs.run_directory import read_json, read_jsonl
from swell.batch.scalers import (
    AdaptiveRule,
    AdaptiveScaler,
    Effort,
    FixedScaler,
    NoiseScaleRule,
    NoiseScaleScaler,
    Points,
    RampScaler,
    steps_of,
)
from swell.config.seeds import derive_seed
from swell.batch.signals import Measurement, PolicyChange, make_aspect
from swell.memory.system import free_memory, give_back_freed_memory, resident_memory
from swell.types import Scaler

EVALUATION_ENVS = 100
"""Most envs that an evaluation plays on at once."""
REHEARSALS = ((2, 4), (2, 8), (4, 4))
"""Horizon and number of envs of the rehearsals that `needs_of` wants."""


@dataclass(frozen=True)
class Parts:
    """The objects that `train` takes, and what was decided in making them."""

    collector: Collector
    learner: AnyLearner
    measurement: Measurement
    scaler: Scaler
    network_name: str
    device: torch.device
    threads: int
    longest_horizon: int
    memory: MemoryPlan

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


def build(config: RunConfig, points: Points | None = None, decided: MemoryPlan | None = None) -> Parts:
    """Everything a run needs. `points` and `decided` are what a run that goes on has found out and decided before."""
    device = resolve_device(config.device)
    planner = MemoryPlanner(config, device, decided)
    with planner.weighing_envs():
        groups = make_env_groups(config)
    envs = groups[0]  # they differ in their seeds alone
    shape = observation_shape(envs)
    network_name = resolve_network(config.network, shape)
    threads = resolve_threads(config.threads, network_name)
    if config.scaler == "ramp" and points is None:
        points = ramp_points(config)
    longest = longest_horizon(config, points or [])
    planner.rehearse(envs)
    torch.set_num_threads(threads)
    most = planner.plan(longest).longest_horizon
    with planner.weighing_envs():
        # It resets the envs, which is when some take most of their memory.
        collector = Collector(groups, most, device, config.staleness)
    plan = planner.plan(longest)
    config = plan.applied_to(config)
    return Parts(
        collector=collector,
        learner=make_learner(config, shape, envs.action_space, device),
        measurement=make_measurement(config, envs.action_space, device),
        scaler=make_scaler(config, points or []),
        network_name=network_name,
        device=device,
        threads=threads,
        longest_horizon=plan.longest_horizon,
        memory=plan,
    )


def make_env_groups(config: RunConfig) -> list[VectorEnv]:
    """All envs in one group; with `overlap` in two halves, each with a seed of its own."""
    if not config.overlap:
        return [make_envs(env_settings(config, config.num_envs, derive_seed(config.seed, "envs")))]
    halves = (derive_seed(config.seed, "envs", number) for number in range(2))
    return [make_envs(env_settings(config, config.num_envs // 2, seed)) for seed in halves]


def env_settings(config: RunConfig, num_envs: int, seed: int, render_mode: str | None = None) -> EnvSettings:
    return EnvSettings(
        env=config.env,
        num_envs=num_envs,
        seed=seed,
        backend=config.backend,
        asynchronous=config.async_envs,
        max_episode_steps=config.max_episode_steps,
        episodic_life=config.episodic_life,
        clip_rewards=config.clip_rewards,
        sticky_actions=config.sticky_actions,
        noop_max=config.noop_max,
        threads=config.threads,
        render_mode=render_mode,
    )


def observation_shape(envs: VectorEnv) -> tuple[int, ...]:
    return tuple(envs.observation_space.shape or ())


def make_measurement(config: RunConfig, action_space: Space, device: torch.device) -> Measurement:
    generator = torch.Generator().manual_seed(derive_seed(config.seed, "probes"))
    name = config.signal_name
    if name == "gradient_noise_scale":
        signal = GradientNoiseScale(
            config.noise_microbatches, config.noise_averaging, config.micro_batch_size, generator
        )
    else:
        kind = make_action_space(action_space, config.env, device).kind
        aspect = make_aspect(name, kind, config.action_tolerance)
        signal = PolicyChange(aspect, config.window, config.probe_states, generator, device)
    return Measurement(signal, config.measure_every, config.measure_unit)


def make_effort(config: RunConfig) -> Effort:
    return Effort(
        num_envs=config.num_envs,
        epochs=config.epochs,
        epoch_rule=config.epoch_rule,
        reference_horizon=config.horizon,
        minibatch_rule=config.minibatch_rule,
        minibatches=config.minibatches,
        minibatch_size=config.minibatch_size,
        horizon_multiple=config.horizon_multiple,
    )


def make_scaler(config: RunConfig, points: Points) -> Scaler:
    effort = make_effort(config)
    if config.scaler == "fixed":
        return FixedScaler(effort, config.horizon)
    if config.scaler == "ramp":
        return RampScaler(effort, points)
    if config.scaler == "noise-scale":
        return NoiseScaleScaler(
            effort,
            NoiseScaleRule(
                min_horizon=config.min_horizon,
                max_horizon=config.max_horizon,
                batch_per_noise_scale=config.batch_per_noise_scale,
                smoothing=config.smoothing,
            ),
        )
    rule = AdaptiveRule(
        min_horizon=config.min_horizon,
        max_horizon=config.max_horizon,
        calm_reading=config.calm_reading,
        volatile_reading=config.volatile_reading,
        interpolation=config.interpolation,
        smoothing=config.smoothing,
        history=config.history,
        warmup_readings=config.warmup_readings,
        rounding=config.rounding,
    )
    return AdaptiveScaler(effort, rule)


def ramp_points(config: RunConfig) -> list[tuple[float, float]]:
    """(progress, horizon) pairs: those of the run to replay, or evenly spaced ones."""
    if config.ramp_from is None:
        spaced = np.linspace(0.0, 1.0, len(config.ramp_horizons))
        return list(zip(map(float, spaced), map(float, config.ramp_horizons), strict=True))
    directory = Path(config.ramp_from)
    rows = read_jsonl(directory / "metrics.jsonl")
    if not rows:
        raise ConfigError(f"ramp_from must be a run directory with a metrics.jsonl, got {config.ramp_from!r}")
    total = read_json(directory / "config.json")["config"]["total_env_steps"]
    started = [0, *(row["env_steps"] for row in rows[:-1])]
    # A run's last rollout is cut to its total, so the plan is what `next_horizon` of the row before said.
    horizons = [rows[0]["horizon"], *(row["next_horizon"] for row in rows[:-1])]
    if config.ramp_order == "shuffled":
        horizons = np.random.default_rng(derive_seed(config.seed, "horizons")).permutation(horizons)
        started = np.cumsum([0, *horizons[:-1]]) * (total / np.sum(horizons))
    return steps_of([(steps / total, float(horizon)) for steps, horizon in zip(started, horizons, strict=True)])


def resolve_device(name: str) -> torch.device:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    if not available[name]:
        raise ConfigError(f"device must be one that this machine has, got {name!r}; try --device auto")
    return torch.device(name)


def resolve_threads(threads: int, network_name: str) -> int:
    """Small networks lose more by handing work between threads than they gain.

    MinAtar's gains on an idle machine, but where another process wants a core its threads wait for each other at every
    step, and it trains at a twentieth of its speed (docs/results/speed.md).
    """
    if threads > 0:
        return threads
    return 1 if network_name in ("mlp", "minatar-cnn") else (os.cpu_count() or 1)


def longest_horizon(config: RunConfig, points: Points) -> int:
    """The horizon that buffers must hold; `points` are those of a ramp."""
    effort = make_effort(config)
    return max((effort.plan_near(horizon).horizon for _, horizon in points), default=config.longest_horizon)


class MemoryPlanner:
    """Finds out what a run will need while its parts are made, unless that is `decided` already."""

    def __init__(self, config: RunConfig, device: torch.device, decided: MemoryPlan | None) -> None:
        self._config = config
        self._decided = decided
        self._needs: Needs | None = None
        self._is_predictable = device.type == "cpu" and resident_memory() is not None
        if config.evaluation_episodes and self._is_predictable and decided is None:
            # The packages that envs import weigh once, however many envs there are.
            make_envs(env_settings(replace(config, async_envs=False), 1, config.seed)).close()
        self._resident = resident_memory() or 0
        self._weight_of_envs = 0
        self._limit = memory_limit(config, self._resident, free_memory())

    @contextmanager
    def weighing_envs(self) -> Generator[None]:
        before = resident_memory() or 0
        yield
        self._weight_of_envs += (resident_memory() or 0) - before

    def rehearse(self, envs: VectorEnv) -> None:
        """In one thread: so few samples are not worth more, and on a busy machine threads wait for each other."""
        if self._is_predictable and self._decided is None:
            torch.set_num_threads(1)
            self._needs = needs_of(*(rehearsal(self._config, envs, *sizes) for sizes in REHEARSALS))

    def plan(self, longest: int) -> MemoryPlan:
        if self._needs is None:
            return self._decided or MemoryPlan(self._config.micro_batch_size, longest)
        give_back_freed_memory()  # of the rehearsals
        self._resident = max(self._resident, resident_memory() or 0)
        footprint = Footprint(
            config=self._config,
            effort=make_effort(self._config),
            needs=self._needs,
            resident=self._resident,
            each_env=self._weight_of_envs / self._config.num_envs,
            evaluation_envs=min(self._config.evaluation_episodes, EVALUATION_ENVS),
        )
        return plan_memory(footprint, longest, self._limit)


def rehearsal(config: RunConfig, envs: VectorEnv, horizon: int, num_envs: int) -> Rehearsed:
    """An iteration of a small run like this one, in gradient steps of `num_envs` samples; it ends a phase of ppg."""
    small = replace(
        config,
        num_envs=num_envs,
        scaler="fixed",
        horizon=horizon,
        horizon_multiple=1,
        reference_batch=None,
        minibatch_rule="count",
        minibatches=horizon,
        micro_batch_size=num_envs,
        signal=config.signal_name,
        probe_states=num_envs,
        noise_microbatches=horizon,
        phase_env_steps=horizon * num_envs,
        auxiliary_minibatch_size=num_envs,
    )
    shape, device = observation_shape(envs), torch.device("cpu")
    observations = np.zeros((horizon + 1, num_envs, *shape), dtype=envs.observation_space.dtype)
    held = rehearse(
        lambda: make_learner(small, shape, envs.action_space, device),
        lambda: make_measurement(small, envs.action_space, device).signal,
        torch.from_numpy(observations),
        samples=num_envs,
    )
    return Rehearsed(num_envs, horizon * num_envs, held)
