"""Swell: reinforcement learning whose batch grows as the policy settles.

    from swell import load_policy, run

    summary = run("CartPole-v1", seed=1)
    actions = load_policy(summary["directory"])(observations)

Names are imported when they are first used, so that `swell --help` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swell import presets
    from swell.algorithms.ess import ESSPPO
    from swell.algorithms.ppg import PPG
    from swell.algorithms.ppo import PPO
    from swell.algorithms.ppo_ewma import PPOEWMA
    from swell.algorithms.pqn import PQN
    from swell.batch.noise_scale import GradientNoiseScale
    from swell.batch.scalers import AdaptiveScaler, FixedScaler, NoiseScaleScaler, RampScaler
    from swell.batch.signals import (
        Measurement,
        PolicyChange,
        behavioral_divergence,
        effective_sample_size,
        kl_divergence,
    )
    from swell.collect.collector import Collector
    from swell.config.run_config import RunConfig
    from swell.loop import train
    from swell.runs.agent import Policy, evaluate, load_policy
    from swell.runs.start import resume, run
    from swell.types import BatchPlan, Iteration, Rollout

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveScaler": "batch.scalers",
    "BatchPlan": "types",
    "Collector": "collect.collector",
    "ESSPPO": "algorithms.ess",
    "FixedScaler": "batch.scalers",
    "GradientNoiseScale": "batch.noise_scale",
    "Iteration": "types",
    "Measurement": "batch.signals",
    "NoiseScaleScaler": "batch.scalers",
    "PPG": "algorithms.ppg",
    "PPO": "algorithms.ppo",
    "PPOEWMA": "algorithms.ppo_ewma",
    "PQN": "algorithms.pqn",
    "Policy": "runs.agent",
    "PolicyChange": "batch.signals",
    "RampScaler": "batch.scalers",
    "Rollout": "types",
    "RunConfig": "config.run_config",
    "behavioral_divergence": "batch.signals",
    "effective_sample_size": "batch.signals",
    "evaluate": "runs.agent",
    "kl_divergence": "batch.signals",
    "load_policy": "runs.agent",
    "resume": "runs.start",
    "run": "runs.start",
    "train": "loop",
}

__all__ = [
    "ESSPPO",
    "PPG",
    "PPO",
    "PPOEWMA",
    "PQN",
    "AdaptiveScaler",
    "BatchPlan",
    "Collector",
    "FixedScaler",
    "GradientNoiseScale",
    "Iteration",
    "Measurement",
    "NoiseScaleScaler",
    "Policy",
    "PolicyChange",
    "RampScaler",
    "Rollout",
    "RunConfig",
    "behavioral_divergence",
    "effective_sample_size",
    "evaluate",
    "kl_divergence",
    "load_policy",
    "presets",
    "resume",
    "run",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "presets":
        return import_module("swell.presets")
    if name not in _HOMES:
        raise AttributeError(f"module 'swell' has no attribute {name!r}")
    return getattr(import_module(f"swell.{_HOMES[name]}"), name)
