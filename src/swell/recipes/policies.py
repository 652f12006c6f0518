"""Recipes for learners of a policy: PPO, PPO-EWMA, PPG, PPG-EWMA and ESS."""

from dataclasses import replace
from typing import Any

from swell.config.run_config import RunConfig
from swell.envs.ids import env_family
from swell.recipes.registry import options_of, recipe

LANDER_PPO: dict[str, Any] = {
    "total_env_steps": 1_000_000,
    "num_envs": 16,
    "horizon": 512,
    "min_horizon": 256,
    "max_horizon": 2048,
    "epochs": 4,
    "minibatches": 64,
    "discount": 0.999,
    "trace_decay": 0.98,
    "entropy_coefficient": 0.01,
}
NORMALIZED: dict[str, Any] = {"normalize_observations": True, "normalize_rewards": True}
CLASSIC_PPO: dict[str, dict[str, Any]] = {
    "LunarLander": {
        **{**LANDER_PPO, **NORMALIZED, "horizon": 256, "min_horizon": 128, "max_horizon": 1024},
        **{"epochs": 10, "minibatches": 32, "learning_rate": 3e-4},
    },
    "LunarLanderContinuous": LANDER_PPO,
    "MountainCar": {**NORMALIZED, "total_env_steps": 500_000, "discount": 0.999},
    "MountainCarContinuous": {**NORMALIZED, "discount": 0.999},
    "Pendulum": {**NORMALIZED, "discount": 0.95, "horizon": 256, "minibatches": 16},
}
"""What some of Gymnasium's own envs need beside the recipe for all; the scores are in docs/results/classic-envs.md."""


@recipe
def ppo_classic(env: str) -> RunConfig:
    """PPO for classic control and other small vector observations; solves CartPole within 100,000 steps."""
    config = RunConfig(
        env=env,
        algorithm="ppo",
        total_env_steps=200_000,
        num_envs=8,
        reward_scale=1.0,
        scaler="fixed",
        horizon=128,
        min_horizon=64,
        max_horizon=512,
        calm_reading=0.01,
        volatile_reading=0.1,
        epochs=10,
        minibatch_rule="count",
        minibatches=8,
        learning_rate=1e-3,
        value_coefficient=0.25,
        entropy_coefficient=0.0,
        advantage_norm="minibatch",
        max_gradient_norm=0.5,
        hidden=(64, 64),
        activation="tanh",
        norm_over="none",
    )
    return replace(config, **options_of(env, CLASSIC_PPO))


@recipe
def ppo_mujoco(env: str) -> RunConfig:
    """PPO for MuJoCo, the rollouts of CleanRL from 8 envs instead of one: horizon 256, 16 minibatches, 10 epochs."""
    return replace(
        ppo_classic(env),
        total_env_steps=1_000_000,
        num_envs=8,
        horizon=256,
        min_horizon=128,
        max_horizon=1024,
        minibatches=16,
        learning_rate=3e-4,
        normalize_rewards=True,
        normalize_observations=True,
        value_clip_range=0.2,
    )


@recipe
def ppo_atari(env: str) -> RunConfig:
    """PPO for Atari with the settings of CleanRL: 8 envs, horizon 128, 4 minibatches, 4 epochs, clip 0.1."""
    return replace(
        ppo_classic(env),
        total_env_steps=10_000_000,
        micro_batch_size=256,
        episodic_life=True,
        clip_rewards=True,
        epochs=4,
        minibatches=4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        value_clip_range=0.1,
        entropy_coefficient=0.01,
        activation="relu",
        architecture="shared",
    )


@recipe
def ppo_minatar(env: str) -> RunConfig:
    """PPO for MinAtar: 64 envs, horizon 64, 8 minibatches, 4 epochs."""
    return replace(
        ppo_classic(env),
        total_env_steps=1_000_000,
        num_envs=64,
        horizon=64,
        min_horizon=32,
        max_horizon=256,
        epochs=4,
        entropy_coefficient=0.01,
        activation="relu",
        architecture="shared",
    )


@recipe
def ppo_procgen(env: str) -> RunConfig:
    """PPO for Procgen with the settings of CleanRL: 64 envs, horizon 256, 8 minibatches, 3 epochs, IMPALA network."""
    return replace(
        ppo_classic(env),
        total_env_steps=25_000_000,
        micro_batch_size=256,
        num_envs=64,
        horizon=256,
        min_horizon=128,
        max_horizon=1024,
        epochs=3,
        learning_rate=5e-4,
        anneal_learning_rate=False,
        normalize_rewards=True,
        discount=0.999,
        value_clip_range=0.2,
        entropy_coefficient=0.01,
        network="impala-cnn",
        activation="relu",
        architecture="shared",
    )


@recipe
def ppo_abs(env: str) -> RunConfig:
    """PPO with an adaptive batch: horizons from half to four times the usual, by the KL divergence of an update."""
    base = replace(plain_ppo(env), scaler="adaptive")
    if env_family(env) != "mujoco":
        return base
    # As in the appendix of the paper, which has one env and CleanRL's 32 minibatches.
    return replace(base, num_envs=1, horizon=2048, min_horizon=1024, max_horizon=8192, minibatches=32)


@recipe
def ppo_abs_release(env: str) -> RunConfig:
    """PPO with an adaptive batch as the public code of ABS does it: mean of 20 readings, scaled epochs, truncation."""
    return replace(
        ppo_abs(env),
        history=20,
        warmup_readings=10,
        rounding="truncate",
        epoch_rule="proportional",
        truncation_is_termination=True,
    )


@recipe
def ppo_ewma(env: str) -> RunConfig:
    """PPO-EWMA: stays near an average of its recent weights; one epoch, so that --invariance on may be used."""
    return replace(
        plain_ppo(env),
        algorithm="ppo-ewma",
        epochs=1,
        advantage_norm="batch",
        value_clip_range=None,
        value_coefficient=0.5,
    )


@recipe
def ppg(env: str) -> RunConfig:
    """PPG: policy phases of one epoch, and after every 32 rollouts an auxiliary phase of 6."""
    base = ppo_ewma(env)
    return replace(
        base,
        algorithm="ppg",
        phase_env_steps=32 * base.num_envs * base.horizon,
        architecture="dual",
    )


@recipe
def ppg_ewma(env: str) -> RunConfig:
    """PPG-EWMA: PPG that stays near an average of its recent weights."""
    return replace(ppg(env), algorithm="ppg-ewma")


@recipe
def ess(env: str) -> RunConfig:
    """The ESS-adaptive objective: no clip range; the batch itself says how far to trust it."""
    return replace(
        plain_ppo(env),
        algorithm="ess",
        clip_range=RunConfig.clip_range,  # which it does not read
        value_clip_range=None,
        advantage_norm="batch",
    )


def plain_ppo(env: str) -> RunConfig:
    """Plain PPO for this kind of env."""
    by_family = {"atari": ppo_atari, "minatar": ppo_minatar, "mujoco": ppo_mujoco, "procgen": ppo_procgen}
    return by_family.get(env_family(env), ppo_classic)(env)
