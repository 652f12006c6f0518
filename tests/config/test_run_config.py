"""RunConfig: every fault found at once, before anything is built."""

import contextlib
import dataclasses
import json
import math
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.config.run_config import RunConfig, config_from_dict
from swell.config.validation import did_you_mean
from swell.errors import ConfigError
from swell.presets import PRESETS, describe_presets, make_config, preset_config

HINTS = get_type_hints(RunConfig)
FIELDS = [field.name for field in dataclasses.fields(RunConfig)]
COUNTS = [name for name in FIELDS if HINTS[name] is int]
NUMBERS = [name for name in FIELDS if HINTS[name] is float]
CHOICES = [name for name in FIELDS if get_origin(HINTS[name]) is Literal]
FLAGS = [name for name in FIELDS if HINTS[name] is bool]
BAD = [
    *[(name, value) for name in COUNTS for value in (-1, 1.5, "many", None, True, math.nan)],
    *[(name, value) for name in NUMBERS for value in (-10.1, math.nan, math.inf, "half", None, False)],
    *[(name, value) for name in CHOICES for value in ("", "no such", None, 3)],
    *[(name, value) for name in FLAGS for value in (1, "yes", None)],
    *[("env", value) for value in ("", None, 3)],
    *[("hidden", value) for value in ((0,), (-1, 3), ("a",), 128, None)],
    *[("max_episode_steps", value) for value in (0, -3, "long", 2.5)],
    ("ramp_horizons", ()),
    ("ramp_horizons", (16, 0)),
    ("target_return", "high"),
    ("target_return", math.nan),
    ("discount", 1.01),
    ("trace_decay", 1.5),
    ("epsilon_end", 2.0),
    ("learning_rate", 0.0),
    ("smoothing", 0.0),
    ("epochs", 0),
    ("minibatches", 0),
    ("num_envs", 0),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda value: repr(value))
def test_a_bad_value_is_named_with_what_is_allowed(name, value):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**{"env": "CartPole-v1", name: value})
    (line,) = caught.value.faults
    assert line.startswith(f"{name} must ")
    assert repr(value) in line
    assert caught.value.exit_code == 2


def test_the_list_of_bad_values_is_long():
    assert len(BAD) >= 120


def test_all_faults_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        RunConfig(env="CartPole-v1", num_envs=0, discount=2.0, min_horizon=128)
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"min_horizon": 128, "max_horizon": 64},
        {"calm_reading": 0.5, "volatile_reading": 0.5},
        {"target_return": 1.0, "evaluate_every": 0},
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields):
    with pytest.raises(ConfigError) as caught:
        RunConfig(env="CartPole-v1", **fields)
    (line,) = caught.value.faults
    assert all(name in line for name in fields)


@given(st.sampled_from(sorted(PRESETS)), st.sampled_from(["CartPole-v1", "ALE/Pong-v5", "MinAtar/Breakout-v1"]))
def test_a_config_survives_json(preset, env):
    config = preset_config(preset, env)
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config


@given(st.dictionaries(st.sampled_from(FIELDS), st.none() | st.integers() | st.floats() | st.text() | st.booleans()))
def test_random_values_never_give_more_than_a_config_error(values):
    with contextlib.suppress(ConfigError):
        assert isinstance(config_from_dict({"env": "CartPole-v1", **values}), RunConfig)


def test_an_unknown_field_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="max_horizn; did you mean max_horizon"):
        config_from_dict({"env": "CartPole-v1", "max_horizn": 3})


def test_every_field_says_what_it_does():
    import inspect

    source = inspect.getsource(RunConfig)
    for name in FIELDS:
        after = source.split(f"\n    {name}: ", 1)[1].split("\n", 1)[1].lstrip()
        assert after.startswith('"""'), name


def test_a_far_name_gets_no_hint():
    assert did_you_mean("zzzz", ["paper"]) == ""


def test_an_unknown_preset_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean paper"):
        preset_config("papr", "CartPole-v1")


def test_the_kind_of_env_picks_the_preset():
    assert make_config("CartPole-v1").preset == "classic"
    assert make_config("MinAtar/Breakout-v1").preset == "minatar"
    assert make_config("pong").preset == "paper"
    assert make_config("ALE/Pong-v5", preset="release", seed=4).seed == 4


@pytest.mark.parametrize("env", ["CartPole-v1", "ALE/Pong-v5", "MinAtar/Breakout-v1"])
def test_paper_and_release_differ_as_their_sources_do(env):
    paper, release = preset_config("paper", env), preset_config("release", env)
    assert (paper.history, paper.warmup_readings, paper.rounding, paper.epoch_rule) == (1, 0, "nearest", "constant")
    assert (release.history, release.warmup_readings) == (20, 10)
    assert (release.rounding, release.epoch_rule) == ("truncate", "scale")
    for preset in (paper, release):
        assert (preset.measure_every, preset.probe_states, preset.smoothing) == (50, 2048, 0.1)
        assert (preset.calm_reading, preset.volatile_reading, preset.interpolation) == (0.05, 0.95, "log")
        assert (preset.epochs, preset.minibatches, preset.minibatch_rule) == (2, 4, "count")
        assert (preset.min_horizon, preset.max_horizon, preset.horizon) == (16, 64, 32)


def test_the_atari_presets_hold_the_published_numbers():
    paper, authors = preset_config("paper", "ALE/Pong-v5"), preset_config("pqn-atari", "ALE/Pong-v5")
    assert (paper.num_envs, paper.total_env_steps, paper.learning_rate) == (128, 20_000_000, 2.5e-4)
    assert (paper.epsilon_start, paper.epsilon_end, paper.epsilon_fraction) == (1.0, 0.001, 0.1)
    assert (paper.discount, paper.trace_decay, paper.max_gradient_norm) == (0.99, 0.65, 10.0)
    assert (authors.scaler, authors.horizon, authors.minibatches, authors.epochs) == ("fixed", 32, 32, 2)
    assert authors.total_env_steps == 50_000_000
    release = preset_config("release", "ALE/Pong-v5")
    assert (paper.episodic_life, release.episodic_life, authors.episodic_life) == (False, True, True)
    assert preset_config("pqn-l", "ALE/Pong-v5").max_horizon == 128
    assert preset_config("pqn-xl", "ALE/Pong-v5").network == "pqn-xl"


def test_every_preset_is_described_in_one_line():
    assert [name for name, _ in describe_presets()] == list(PRESETS)
    assert all(text.endswith(".") and len(text) < 120 for _, text in describe_presets())


def test_choices_of_the_config_are_those_of_the_code():
    from swell.algorithms import ess, ppo, pqn
    from swell.batch import rules as invariance
    from swell.batch import scalers, signals
    from swell.envs import contract
    from swell.learning import policy_batch
    from swell.networks import actor_critics as policies
    from swell.networks import encoders
    from swell.networks import q_networks as heads

    pairs = {
        "epoch_rule": scalers.EpochRule,
        "minibatch_rule": scalers.MinibatchRule,
        "interpolation": scalers.Interpolation,
        "rounding": scalers.Rounding,
        "window": signals.Window,
        "measure_unit": signals.Unit,
        "learning_rate_rule": pqn.LearningRateRule,
        "network": heads.NetworkName,
        "norm_over": encoders.NormOver,
        "multi_skip_head": heads.MultiSkipHead,
        "activation": encoders.Activation,
        "architecture": policies.Architecture,
        "advantage_norm": ppo.AdvantageNorm,
        "staleness_mode": policy_batch.StalenessMode,
        "ess_scope": ess.ESSScope,
        "ess_penalty": ess.ESSPenalty,
        "backend": contract.Backend,
    }
    for name, choices in pairs.items():
        assert get_args(HINTS[name]) == get_args(choices), name
    assert get_args(get_args(HINTS["invariance_rules"])[0]) == get_args(invariance.Rule)
    assert RunConfig("env").invariance_rules == invariance.DEFAULT_RULES
    measured = {*get_args(signals.PolicySignal), "gradient_noise_scale", "auto"}
    assert {choice for part in get_args(HINTS["signal"]) for choice in get_args(part) or (part,)} == measured


@pytest.mark.parametrize(
    ("fields", "signal"),
    [
        ({}, "behavioral_divergence"),
        ({"algorithm": "ppo"}, "kl_divergence"),
        ({"algorithm": "ess"}, "kl_divergence"),
        ({"scaler": "noise-scale"}, "gradient_noise_scale"),
        ({"algorithm": "ppo", "scaler": "noise-scale"}, "gradient_noise_scale"),
        ({"algorithm": "ppo", "signal": "behavioral_divergence"}, "behavioral_divergence"),
    ],
)
def test_the_usual_signal_is_the_one_that_fits(fields, signal):
    assert RunConfig("CartPole-v1", **fields).signal_name == signal


@pytest.mark.parametrize("algorithm", get_args(HINTS["algorithm"]))
@pytest.mark.parametrize(
    "env", ["CartPole-v1", "ALE/Pong-v5", "MinAtar/Breakout-v1", "HalfCheetah-v5", "procgen/coinrun"]
)
def test_every_algorithm_has_a_preset_for_every_kind_of_env(algorithm, env):
    config = make_config(env, algorithm=algorithm)
    assert (config.algorithm, config.env) == (algorithm, env)
    assert preset_config(config.preset, env) == config


def test_presets_of_the_invariant_learners_make_one_epoch():
    for preset in ("ppo-ewma", "ppg", "ppg-ewma"):
        config = preset_config(preset, "CartPole-v1")
        assert (config.epochs, config.advantage_norm) == (1, "batch")
    assert preset_config("ppg", "CartPole-v1").phase_env_steps == 32 * 8 * 128
