"""Named recipes: functions from an env id to a RunConfig. `swell presets` shows the first line of each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from swell.config import RunConfig, did_you_mean
from swell.envs.ids import env_family
from swell.errors import ConfigError

Preset = Callable[[str], RunConfig]


def classic(env: str) -> RunConfig:
    """PQN with an adaptive batch for classic control and other small vector observations; minutes on a CPU."""
    return RunConfig(env=env, preset="classic")


def minatar(env: str) -> RunConfig:
    """PQN with an adaptive batch for MinAtar, the 32 minibatches of the PQN authors, tuned for a million steps."""
    return replace(
        pqn_minatar(env),
        preset="minatar",
        scaler="adaptive",
        total_env_steps=1_000_000,
        learning_rate=1e-3,
        epsilon_end=0.01,
    )


def paper(env: str) -> RunConfig:
    """ABS as the paper states it: single readings, no warm-up, 2 epochs, 4 minibatches. The default for Atari.

    Averaging readings first was tried and left out: smoothing averages already, and a mean of 20 only lags behind
    (docs/results/averaging.md).
    """
    return replace(
        _family_base(env),
        preset="paper",
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


def release(env: str) -> RunConfig:
    """ABS as its public code does it: mean of 20 readings, warm-up of 10, scaled epochs, a truncated horizon."""
    return replace(
        paper(env),
        preset="release",
        episodic_life=env_family(env) == "atari",
        history=20,
        warmup_readings=10,
        rounding="truncate",
        epoch_rule="scale",
        norm_over="map",
        multi_skip_head="release",
        truncation_is_termination=True,
    )


def pqn_l(env: str) -> RunConfig:
    """PQN-L with an adaptive batch: 5 multi-skip blocks, horizons 16 to 128."""
    return replace(paper(env), preset="pqn-l", network="pqn-l", max_horizon=128)


def pqn_xl(env: str) -> RunConfig:
    """PQN-XL with an adaptive batch: 10 multi-skip blocks, horizons 16 to 128."""
    return replace(paper(env), preset="pqn-xl", network="pqn-xl", max_horizon=128)


def pqn_atari(env: str) -> RunConfig:
    """Plain PQN for Atari as its authors run it: 128 envs, horizon 32, 32 minibatches, 2 epochs."""
    return RunConfig(
        env=env,
        preset="pqn-atari",
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
    )


def pqn_minatar(env: str) -> RunConfig:
    """Plain PQN for MinAtar as its authors run it: 128 envs, horizon 32, 32 minibatches, 2 epochs."""
    return replace(
        pqn_atari(env),
        preset="pqn-minatar",
        total_env_steps=10_000_000,
        episodic_life=False,
        clip_rewards=False,
        learning_rate=5e-4,
        anneal_learning_rate=True,
        epsilon_end=0.05,
    )


def pqn_classic(env: str) -> RunConfig:
    """Plain PQN for classic control as its authors run it: 32 envs, horizon 64, 16 minibatches, 4 epochs."""
    return RunConfig(
        env=env,
        preset="pqn-classic",
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


PRESETS: dict[str, Preset] = {
    "classic": classic,
    "minatar": minatar,
    "paper": paper,
    "release": release,
    "pqn-l": pqn_l,
    "pqn-xl": pqn_xl,
    "pqn-atari": pqn_atari,
    "pqn-minatar": pqn_minatar,
    "pqn-classic": pqn_classic,
}


def preset_config(name: str, env: str) -> RunConfig:
    """The config of a preset; `auto` goes by the kind of env."""
    if name == "auto":
        name = {"atari": "paper", "minatar": "minatar"}.get(env_family(env), "classic")
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name}{did_you_mean(name, list(PRESETS))} (`swell presets` lists them)")
    return PRESETS[name](env)


def describe_presets() -> list[tuple[str, str]]:
    """Name and one line for each preset."""
    return [(name, (preset.__doc__ or "").splitlines()[0]) for name, preset in PRESETS.items()]


def make_config(env: str, **overrides: Any) -> RunConfig:
    """The preset of an env, or the one named by `preset`, with some fields changed."""
    return replace(preset_config(overrides.pop("preset", "auto"), env), **overrides)


def _family_base(env: str) -> RunConfig:
    """What the paper and the release leave to the kind of env: rates, exploration, rewards, number of envs."""
    family = env_family(env)
    if family == "atari":
        return replace(pqn_atari(env), total_env_steps=20_000_000, loss_coefficient=1.0)
    return replace(pqn_minatar(env), loss_coefficient=1.0) if family == "minatar" else classic(env)
