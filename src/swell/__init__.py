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
    from swell.algorithms.pqn import PQN
    from swell.collect import Collector
    from swell.config import RunConfig
    from swell.loop import train
    from swell.policy import Policy, evaluate, load_policy
    from swell.runs import resume, run
    from swell.scalers import AdaptiveScaler, FixedScaler, RampScaler
    from swell.signals import Measurement, behavioral_divergence
    from swell.types import BatchPlan, Iteration, Rollout

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveScaler": "scalers",
    "BatchPlan": "types",
    "Collector": "collect",
    "FixedScaler": "scalers",
    "Iteration": "types",
    "Measurement": "signals",
    "PQN": "algorithms.pqn",
    "Policy": "policy",
    "RampScaler": "scalers",
    "Rollout": "types",
    "RunConfig": "config",
    "behavioral_divergence": "signals",
    "evaluate": "policy",
    "load_policy": "policy",
    "resume": "runs",
    "run": "runs",
    "train": "loop",
}

__all__ = [
    "PQN",
    "AdaptiveScaler",
    "BatchPlan",
    "Collector",
    "FixedScaler",
    "Iteration",
    "Measurement",
    "Policy",
    "RampScaler",
    "Rollout",
    "RunConfig",
    "behavioral_divergence",
    "evaluate",
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
