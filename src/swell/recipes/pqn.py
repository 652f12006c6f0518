"""Recipes for PQN: ours, those of the ABS paper and its release, and plain ones."""

from dataclasses import replace
from typing import Any

from swell.config.run_config import RunConfig
from swell.envs.ids import env_family
from swell.recipes.registry import options_of, recipe

CLASSIC_PQN: dict[str, dict[str, Any]] = {
    "Acrobot": {"total_env_steps": 500_000},
    "LunarLander": {"total_env_steps": 500_000},
}
"""What some of Gymnasium's own envs need beside the recipe for all; the scores are in docs/results/classic-envs.md."""


@recipe
def classic(env: str) -> RunConfig:
    """PQN with an adaptive batch for classic control and other small vector observations; a minute on a CPU."""
    # Whatever the horizon, a gradient step for every 8 samples: docs/results/zero-regret
    return replace(RunConfig(env=env), minibatch_size=8, **options_of(env, CLASSIC_PQN))


@recipe
def minatar(env: str) -> RunConfig:
    """PQN for MinAtar with short rollouts in minibatches of 8 samples; tuned for a million steps on a CPU."""
    # So many small gradient steps have the smallest regret of what was tried, controllers included
    # (docs/results/zero-regret). A GPU, which small minibatches leave idle, is faster with `pqn-minatar`.
    return replace(minatar_abs(env), scaler="fixed", horizon=8, minibatches=128)


@recipe
def minatar_abs(env: str) -> RunConfig:
    """PQN for MinAtar with a horizon by behavioral divergence, as ABS has it: from 16 to 64."""
    return replace(
        pqn_minatar(env),
        scaler="adaptive",
        total_env_steps=1_000_000,
        learning_rate=1e-3,
        epsilon_end=0.01,
    )


@recipe
def paper(env: str) -> RunConfig:
    """ABS as the paper states it: single readings, no warm-up, 2 epochs, 4 minibatches. The default for Atari.

    Averaging readings first was tried and left out: smoothing averages already, and a mean of 20 only lags behind
    (docs/results/averaging.md).
    """
    return replace(
        _family_base(env),
        scaler="adaptive",
        episodic_life=False,  # "Life Information: False" in its tables; its code, and PQN's authors, use it
        min_horizon=16,
        max_horizon=64,
        measure_every=50,
        smoothing=0.1,
        history=1,
        warmup_readings=0,
        rounding="nearest",
        epochs=2,
        epoch_rule="constant",
        minibatch_rule="count",
        minibatches=4,
    )


@recipe
def release(env: str) -> RunConfig:
    """ABS as its public code does it: mean of 20 readings, warm-up of 10, scaled epochs, a truncated horizon."""
    return replace(
        paper(env),
        episodic_life=env_family(env) == "atari",
        history=20,
        warmup_readings=10,
        rounding="truncate",
        epoch_rule="scale",
        norm_over="map",
        multi_skip_head="release",
        truncation_is_termination=True,
    )


@recipe
def pqn_l(env: str) -> RunConfig:
    """PQN-L with an adaptive batch: 5 multi-skip blocks, horizons 16 to 128."""
    return replace(paper(env), network="pqn-l", max_horizon=128)


@recipe
def pqn_xl(env: str) -> RunConfig:
    """PQN-XL with an adaptive batch: 10 multi-skip blocks, horizons 16 to 128."""
    return replace(paper(env), network="pqn-xl", max_horizon=128)


@recipe
def pqn_atari(env: str) -> RunConfig:
    """Plain PQN for Atari as its authors run it: 128 envs, horizon 32, 32 minibatches, 2 epochs."""
    return RunConfig(
        env=env,
        scaler="fixed",
        total_env_steps=50_000_000,
        num_envs=128,
        horizon=32,
        episodic_life=True,
        clip_rewards=True,
        reward_scale=1.0,
        measure_every=50,
        epochs=2,
        minibatch_rule="count",
        minibatches=32,
        learning_rate=2.5e-4,
        anneal_learning_rate=False,
        epsilon_start=1.0,
        epsilon_end=0.001,
        epsilon_fraction=0.1,
        discount=0.99,
        trace_decay=0.65,
        loss_coefficient=0.5,
        micro_batch_size=256,  # on a CPU an eighth faster than 1024, see docs/results/speed.md; raise it on a GPU
    )


@recipe
def pqn_minatar(env: str) -> RunConfig:
    """Plain PQN for MinAtar as its authors run it: 128 envs, horizon 32, 32 minibatches, 2 epochs."""
    return replace(
        pqn_atari(env),
        total_env_steps=10_000_000,
        micro_batch_size=1024,
        episodic_life=False,
        clip_rewards=False,
        learning_rate=5e-4,
        anneal_learning_rate=True,
        epsilon_end=0.05,
    )


@recipe
def pqn_classic(env: str) -> RunConfig:
    """Plain PQN for classic control as its authors run it: 32 envs, horizon 64, 16 minibatches, 4 epochs."""
    return RunConfig(
        env=env,
        scaler="fixed",
        total_env_steps=500_000,
        num_envs=32,
        horizon=64,
        minibatch_rule="count",
        minibatches=16,
        epochs=4,
        learning_rate=1e-4,
        epsilon_end=0.2,
        epsilon_fraction=0.2,
        hidden=(256, 256),
        loss_coefficient=0.5,
    )


def _family_base(env: str) -> RunConfig:
    """What the paper and the release leave to the kind of env: rates, exploration, rewards, number of envs."""
    family = env_family(env)
    if family == "atari":
        return replace(pqn_atari(env), total_env_steps=20_000_000, loss_coefficient=1.0)
    if family == "procgen":
        return replace(
            pqn_atari(env),
            total_env_steps=25_000_000,
            num_envs=64,
            episodic_life=False,
            clip_rewards=False,
            loss_coefficient=1.0,
            network="impala-cnn",
        )
    return replace(pqn_minatar(env), loss_coefficient=1.0) if family == "minatar" else classic(env)
