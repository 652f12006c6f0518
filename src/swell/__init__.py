"""Swell: reinforcement learning whose batch grows as the policy settles.

    from swell import load_policy, run

    summary = run("CartPole-v1", seed=1)
    actions = load_policy(summary["directory"])(observations)

Names are imported when they are first used, so that `swell --help` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swell import presets as presets
    from swell.algorithms.ess import ESSPPO as ESSPPO
    from swell.algorithms.ppg import PPG as PPG, PPGEWMA as PPGEWMA
    from swell.algorithms.ppo import PPO as PPO
    from swell.algorithms.ppo_ewma import PPOEWMA as PPOEWMA
    from swell.algorithms.pqn import PQN as PQN
    from swell.batch.controller import BatchController as BatchController
    from swell.batch.noise_scale import GradientNoiseScale as GradientNoiseScale
    from swell.batch.rules import BatchSizes as BatchSizes
    from swell.batch.scalers import (
        AdaptiveScaler as AdaptiveScaler,
        FixedScaler as FixedScaler,
        HorizonScaler as HorizonScaler,
        NoiseScaleScaler as NoiseScaleScaler,
        RampScaler as RampScaler,
    )
    from swell.batch.signals import (
        BehavioralDivergence as BehavioralDivergence,
        EffectiveSampleSize as EffectiveSampleSize,
        KLDivergence as KLDivergence,
        PolicyChange as PolicyChange,
        behavioral_divergence as behavioral_divergence,
        effective_sample_size as effective_sample_size,
        kl_divergence as kl_divergence,
    )
    from swell.collect.collector import Collector as Collector
    from swell.config.batch import AdaptiveSettings as AdaptiveSettings, BatchSettings as BatchSettings
    from swell.config.learners import (
        ESSSettings as ESSSettings,
        PPGEWMASettings as PPGEWMASettings,
        PPGSettings as PPGSettings,
        PPOEWMASettings as PPOEWMASettings,
        PPOSettings as PPOSettings,
        PQNSettings as PQNSettings,
    )
    from swell.config.run_config import RunConfig as RunConfig
    from swell.config.runs import EnvSettings as EnvSettings
    from swell.envs import make_envs as make_envs
    from swell.learning.distributions import categorical_view as categorical_view, gaussian_view as gaussian_view
    from swell.loop import train as train
    from swell.measurement import Measurement as Measurement
    from swell.runs.agent import Policy as Policy, evaluate as evaluate, load_policy as load_policy
    from swell.runs.export import export as export
    from swell.runs.start import resume as resume, run as run
    from swell.types import BatchPlan as BatchPlan, Iteration as Iteration, PolicyView as PolicyView, Rollout as Rollout

__version__ = "0.1.0"

_NAMES = {
    "algorithms.ess": "ESSPPO",
    "algorithms.ppg": "PPG PPGEWMA",
    "algorithms.ppo": "PPO",
    "algorithms.ppo_ewma": "PPOEWMA",
    "algorithms.pqn": "PQN",
    "batch.controller": "BatchController",
    "batch.noise_scale": "GradientNoiseScale",
    "batch.rules": "BatchSizes",
    "batch.scalers": "AdaptiveScaler FixedScaler HorizonScaler NoiseScaleScaler RampScaler",
    "batch.signals": "BehavioralDivergence EffectiveSampleSize KLDivergence PolicyChange "
    "behavioral_divergence effective_sample_size kl_divergence",
    "collect.collector": "Collector",
    "config.batch": "AdaptiveSettings BatchSettings",
    "config.learners": "ESSSettings PPGEWMASettings PPGSettings PPOEWMASettings PPOSettings PQNSettings",
    "config.run_config": "RunConfig",
    "config.runs": "EnvSettings",
    "envs": "make_envs",
    "learning.distributions": "categorical_view gaussian_view",
    "loop": "train",
    "measurement": "Measurement",
    "runs.agent": "Policy evaluate load_policy",
    "runs.export": "export",
    "runs.start": "resume run",
    "types": "BatchPlan Iteration PolicyView Rollout",
}
"""The public names of each module."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(["presets", *_HOMES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "presets":
        return import_module("swell.presets")
    if name not in _HOMES:
        raise AttributeError(f"module 'swell' has no attribute {name!r}")
    return getattr(import_module(f"swell.{_HOMES[name]}"), name)
