"""Named recipes: functions from an env id to a RunConfig. `swell presets` shows the first line of each."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

from swell.config.own_envs import env_name
from swell.config.run_config import ALGORITHMS, RunConfig, changed
from swell.config.runs import Algorithm
from swell.config.validation import did_you_mean
from swell.envs.ids import env_family
from swell.errors import ConfigError
from swell.preset_files import NOT_IN_FILES, is_preset_file, read_preset_file, write_preset_file

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
CLASSIC_PQN: dict[str, dict[str, Any]] = {
    "Acrobot": {"total_env_steps": 500_000},
    "LunarLander": {"total_env_steps": 500_000, "minibatch_rule": "count", "minibatches": 32},
}
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

Preset = Callable[[str], RunConfig]
PRESETS: dict[str, Preset] = {}


def recipe(make: Preset) -> Preset:
    """Makes a function a preset, under its own name, which the configs it makes carry."""
    name = make.__name__.replace("_", "-")

    @wraps(make)
    def named(env: str) -> RunConfig:
        return replace(make(env), preset=name)

    PRESETS[name] = named
    return named


@recipe
def classic(env: str) -> RunConfig:
    """PQN with an adaptive batch for classic control and other small vector observations; minutes on a CPU."""
    return replace(RunConfig(env=env), **_for_env(env, CLASSIC_PQN))


@recipe
def minatar(env: str) -> RunConfig:
    """PQN for MinAtar with short rollouts and small minibatches; tuned for a million steps."""
    # A horizon of 8 has the smallest regret of what was tried, controllers included: docs/results/zero-regret
    return replace(minatar_abs(env), scaler="fixed", horizon=8)


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
    return replace(config, **_for_env(env, CLASSIC_PPO))


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
    base = replace(_ppo_base(env), scaler="adaptive")
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
        _ppo_base(env),
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
        _ppo_base(env),
        algorithm="ess",
        clip_range=RunConfig.clip_range,  # which it does not read
        value_clip_range=None,
        advantage_norm="batch",
    )


def preset_config(name: str, env: str, algorithm: Algorithm = "pqn") -> RunConfig:
    """The config of a preset, or of a preset file; `auto` goes by the algorithm and the kind of env."""
    if name == "auto":
        return _usual_preset(env, algorithm)
    if is_preset_file(name):
        return _config_of_file(name, env, algorithm)
    if name not in PRESETS:
        raise ConfigError(_unknown(name))
    return PRESETS[name](env)


def _unknown(name: str) -> str:
    lists = "`swell presets` lists them; a file of your own ends in .toml"
    return f"unknown preset {name}{did_you_mean(name, list(PRESETS))} ({lists})"


def write_preset(path: str | Path, config: RunConfig, remarks: Sequence[str] = ()) -> None:
    """Writes a preset file that makes this config again, whatever the seed: the recipe it came from, and what differs.

    `remarks` become comments on top of it.
    """
    recipe = read_preset_file(config.preset).recipe if is_preset_file(config.preset) else config.preset
    base = preset_config(recipe, config.env, config.algorithm)
    names = [field.name for field in fields(RunConfig) if field.name not in (*NOT_IN_FILES, "preset")]
    differences = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(base, name)}
    write_preset_file(Path(path), base.preset, differences, remarks)


def describe_presets() -> list[tuple[str, str]]:
    """Name and one line for each preset."""
    return [(name, (preset.__doc__ or "").splitlines()[0]) for name, preset in PRESETS.items()]


def make_config(env: str | Callable[..., Any], **overrides: Any) -> RunConfig:
    """The preset of an env and an algorithm, or the one named by `preset`, with some fields changed.

    A function or a class that makes an env stands for it; one of a module goes by `module:name`.
    """
    preset = preset_config(overrides.pop("preset", "auto"), env_name(env), overrides.get("algorithm", "pqn"))
    if "algorithm" in overrides:
        require_agreement(preset, overrides["algorithm"])
    return changed(preset, **overrides)


def require_agreement(preset: RunConfig, algorithm: str) -> None:
    """A ConfigError where the algorithm that is asked for is not the one that a preset has its numbers for."""
    if algorithm in ALGORITHMS and algorithm != preset.algorithm:
        raise ConfigError(
            f"algorithm must be {preset.algorithm} with preset {preset.preset}, got {algorithm}; "
            "name one of the two, and it sets the other"
        )


def _for_env(env: str, table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    by_name = {name.lower(): options for name, options in table.items()}
    return by_name.get(env.lower().partition("-v")[0], {})


def _config_of_file(path: str, env: str, algorithm: Algorithm) -> RunConfig:
    """The recipe that a file starts from with the options that it gives; every fault is told, with the file's name."""
    file = read_preset_file(path)
    known = file.recipe == "auto" or file.recipe in PRESETS
    faults = [*file.faults, *([] if known else [_unknown(file.recipe)])]
    named = file.options.get("algorithm", algorithm)
    base = preset_config(file.recipe if known else "auto", env, named if named in ALGORITHMS else algorithm)
    try:
        config = changed(base, **file.options)
    except ConfigError as error:
        faults += error.faults
        config = base
    if faults:
        raise ConfigError(*(f"{path}: {fault}" for fault in faults))
    return replace(config, preset=path)


def _usual_preset(env: str, algorithm: Algorithm) -> RunConfig:
    if algorithm == "pqn":
        usual = {"atari": paper, "minatar": minatar, "procgen": paper}
        return usual.get(env_family(env), classic)(env)
    if algorithm == "ppo":
        return _ppo_base(env)
    if algorithm not in PRESETS:
        raise ConfigError(f"unknown algorithm {algorithm}{did_you_mean(algorithm, list(PRESETS))}")
    return PRESETS[algorithm](env)


def _ppo_base(env: str) -> RunConfig:
    """Plain PPO for this kind of env."""
    by_family = {"atari": ppo_atari, "minatar": ppo_minatar, "mujoco": ppo_mujoco, "procgen": ppo_procgen}
    return by_family.get(env_family(env), ppo_classic)(env)


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
