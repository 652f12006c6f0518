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
    from swell.algorithms.ppg import PPG, PPGEWMA
    from swell.algorithms.ppo import PPO
    from swell.algorithms.ppo_ewma import PPOEWMA
    from swell.algorithms.pqn import PQN
    from swell.batch.controller import BatchController
    from swell.batch.noise_scale import GradientNoiseScale
    from swell.batch.rules import BatchSizes
    from swell.batch.scalers import AdaptiveScaler, FixedScaler, HorizonScaler, NoiseScaleScaler, RampScaler
    from swell.batch.signals import (
        BehavioralDivergence,
        EffectiveSampleSize,
        KLDivergence,
        PolicyChange,
        behavioral_divergence,
        effective_sample_size,
        kl_divergence,
    )
    from swell.collect.collector import Collector
    from swell.config.batch import AdaptiveSettings, BatchSettings
    from swell.config.learners import (
        ESSSettings,
        PPGEWMASettings,
        PPGSettings,
        PPOEWMASettings,
        PPOSettings,
        PQNSettings,
    )
    from swell.config.run_config import RunConfig
    from swell.config.runs import EnvSettings
    from swell.envs import make_envs
    from swell.learning.distributions import categorical_view, gaussian_view
    from swell.loop import train
    from swell.measurement import Measurement
    from swell.runs.agent import Policy, evaluate, load_policy
    from swell.runs.start import resume, run
    from swell.types import BatchPlan, Iteration, PolicyView, Rollout

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveScaler": "batch.scalers",
    "AdaptiveSettings": "config.batch",
    "BatchController": "batch.controller",
    "BatchPlan": "types",
    "BatchSettings": "config.batch",
    "BatchSizes": "batch.rules",
    "BehavioralDivergence": "batch.signals",
    "Collector": "collect.collector",
    "ESSPPO": "algorithms.ess",
    "ESSSettings": "config.learners",
    "EffectiveSampleSize": "batch.signals",
    "EnvSettings": "config.runs",
    "FixedScaler": "batch.scalers",
    "GradientNoiseScale": "batch.noise_scale",
    "HorizonScaler": "batch.scalers",
    "Iteration": "types",
    "KLDivergence": "batch.signals",
    "Measurement": "measurement",
    "NoiseScaleScaler": "batch.scalers",
    "PPG": "algorithms.ppg",
    "PPGEWMA": "algorithms.ppg",
    "PPGEWMASettings": "config.learners",
    "PPGSettings": "config.learners",
    "PPO": "algorithms.ppo",
    "PPOEWMA": "algorithms.ppo_ewma",
    "PPOEWMASettings": "config.learners",
    "PPOSettings": "config.learners",
    "PQN": "algorithms.pqn",
    "PQNSettings": "config.learners",
    "Policy": "runs.agent",
    "PolicyChange": "batch.signals",
    "PolicyView": "types",
    "RampScaler": "batch.scalers",
    "Rollout": "types",
    "RunConfig": "config.run_config",
    "behavioral_divergence": "batch.signals",
    "categorical_view": "learning.distributions",
    "effective_sample_size": "batch.signals",
    "evaluate": "runs.agent",
    "gaussian_view": "learning.distributions",
    "kl_divergence": "batch.signals",
    "load_policy": "runs.agent",
    "make_envs": "envs",
    "resume": "runs.start",
    "run": "runs.start",
    "train": "loop",
}

__all__ = [
    "ESSPPO",
    "PPG",
    "PPGEWMA",
    "PPO",
    "PPOEWMA",
    "PQN",
    "AdaptiveScaler",
    "AdaptiveSettings",
    "BatchController",
    "BatchPlan",
    "BatchSettings",
    "BatchSizes",
    "BehavioralDivergence",
    "Collector",
    "ESSSettings",
    "EffectiveSampleSize",
    "EnvSettings",
    "FixedScaler",
    "GradientNoiseScale",
    "HorizonScaler",
    "Iteration",
    "KLDivergence",
    "Measurement",
    "NoiseScaleScaler",
    "PPGEWMASettings",
    "PPGSettings",
    "PPOEWMASettings",
    "PPOSettings",
    "PQNSettings",
    "Policy",
    "PolicyChange",
    "PolicyView",
    "RampScaler",
    "Rollout",
    "RunConfig",
    "behavioral_divergence",
    "categorical_view",
    "effective_sample_size",
    "evaluate",
    "gaussian_view",
    "kl_divergence",
    "load_policy",
    "make_envs",
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
