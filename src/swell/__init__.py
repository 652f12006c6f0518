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
    from swell.collect import Collector
    from swell.config import RunConfig
    from swell.loop import train
    from swell.noise_scale import GradientNoiseScale
    from swell.policy import Policy, evaluate, load_policy
    from swell.runs import resume, run
    from swell.scalers import AdaptiveScaler, FixedScaler, NoiseScaleScaler, RampScaler
    from swell.signals import Measurement, PolicyChange, behavioral_divergence, effective_sample_size, kl_divergence
    from swell.types import BatchPlan, Iteration, Rollout

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveScaler": "scalers",
    "BatchPlan": "types",
    "Collector": "collect",
    "ESSPPO": "algorithms.ess",
    "FixedScaler": "scalers",
    "GradientNoiseScale": "noise_scale",
    "Iteration": "types",
    "Measurement": "signals",
    "NoiseScaleScaler": "scalers",
    "PPG": "algorithms.ppg",
    "PPO": "algorithms.ppo",
    "PPOEWMA": "algorithms.ppo_ewma",
    "PQN": "algorithms.pqn",
    "Policy": "policy",
    "PolicyChange": "signals",
    "RampScaler": "scalers",
    "Rollout": "types",
    "RunConfig": "config",
    "behavioral_divergence": "signals",
    "effective_sample_size": "signals",
    "evaluate": "policy",
    "kl_divergence": "signals",
    "load_policy": "policy",
    "resume": "runs",
    "run": "runs",
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
