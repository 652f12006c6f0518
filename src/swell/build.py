"""From a RunConfig to the objects of the loop."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Space
from torch import Generator

from swell.collect import Collector
from swell.config import RunConfig
from swell.envs import EnvSettings, VectorEnv, make_envs
from swell.errors import ConfigError, OutOfMemoryError
from swell.learners import AnyLearner, make_action_space, make_learner
from swell.networks.heads import resolve_network
from swell.noise_scale import GradientNoiseScale
from swell.run_directory import read_json, read_jsonl
from swell.scalers import (
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
from swell.seeds import derive_seed
from swell.signals import Measurement, PolicyChange, make_aspect
from swell.types import Scaler


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


def build(config: RunConfig, points: Points | None = None) -> Parts:
    """Everything a run needs. `points` replaces what a replayed run would be asked for."""
    device = resolve_device(config.device)
    envs = make_envs(env_settings(config, config.num_envs, derive_seed(config.seed, "envs")))
    shape = observation_shape(envs)
    network_name = resolve_network(config.network, shape)
    threads = resolve_threads(config.threads, network_name)
    torch.set_num_threads(threads)
    if config.scaler == "ramp" and points is None:
        points = ramp_points(config)
    longest = max(int(horizon) for _, horizon in points) if points else config.longest_horizon
    require_memory(config, envs, longest)
    return Parts(
        collector=Collector(envs, longest, device, config.staleness),
        learner=make_learner(config, shape, envs.action_space, device),
        measurement=make_measurement(config, envs.action_space, device),
        scaler=make_scaler(config, points or []),
        network_name=network_name,
        device=device,
        threads=threads,
        longest_horizon=longest,
    )


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
    generator = Generator().manual_seed(derive_seed(config.seed, "probes"))
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
    """Small networks lose more by handing work between threads than they gain."""
    if threads > 0:
        return threads
    return 1 if network_name in ("mlp", "minatar-cnn") else (os.cpu_count() or 1)


def require_memory(config: RunConfig, envs: VectorEnv, horizon: int) -> None:
    """Refuses what cannot fit, before it is half collected: the rollouts held at once, and the phase of ppg."""
    space = envs.observation_space
    row = int(np.prod(space.shape or ())) * np.dtype(space.dtype or np.float32).itemsize
    rollouts = config.staleness + 2 if config.staleness else 1  # those that wait, the one trained on, the buffer
    needed = {f"{rollouts} × a rollout of {horizon} × {envs.num_envs}": rollouts * (horizon + 1) * envs.num_envs * row}
    if config.algorithm in ("ppg", "ppg-ewma") and config.auxiliary_epochs:
        needed[f"a phase of {config.phase_env_steps:,} env steps"] = config.phase_env_steps * row
    available = _available_memory()
    if available is not None and sum(needed.values()) > 0.9 * available:
        parts = " and ".join(f"{what} ({size / 2**20:,.0f} MB)" for what, size in needed.items())
        raise OutOfMemoryError(
            f"{parts}: {available / 2**20:,.0f} MB are free; lower max_horizon, num_envs, staleness or phase_env_steps"
        )


def _available_memory() -> int | None:
    """Bytes that can be had without swapping, where the system says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
