"""RunConfig: every fault found at once, before anything is built."""

import contextlib
import dataclasses
import json
import math
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, strategies as st
from settings_checks import (
    CARTPOLE,
    another_value,
    fields_for,
    foreign,
    listed,
    readers,
    rules_met,
    rules_of,
)

from swell.config import run_config
from swell.config.options import options
from swell.config.run_config import SCALERS, SIGNALS, RunConfig, changed, config_from_dict
from swell.config.validation import ChoiceOrImport, did_you_mean
from swell.errors import ConfigError
from swell.presets import PRESETS, describe_presets, make_config, preset_config

HINTS = get_type_hints(RunConfig)
OPEN_CHOICES = {
    name: note.choices
    for name, hint in get_type_hints(RunConfig, include_extras=True).items()
    for note in getattr(hint, "__metadata__", ())
    if isinstance(note, ChoiceOrImport)
}
"""Options that also take something of the user's own."""
FIELDS = [field.name for field in dataclasses.fields(RunConfig)]
COUNTS = [name for name in FIELDS if HINTS[name] is int]
NUMBERS = [name for name in FIELDS if HINTS[name] is float]
CHOICES = [name for name in FIELDS if get_origin(HINTS[name]) is Literal]
FLAGS = [name for name in FIELDS if HINTS[name] is bool]
BAD = [
    *[(name, value) for name in COUNTS for value in (-1, 1.5, "many", None, True, math.nan)],
    *[(name, value) for name in NUMBERS for value in (-10.1, math.nan, math.inf, "half", None, False)],
    *[(name, value) for name in CHOICES for value in ("", "no such", None, 3)],
    *[(name, value) for name in OPEN_CHOICES for value in ("", "no such", None, 3, "module:", ":name", "a b:c")],
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
        RunConfig(**{"env": "CartPole-v1", "scaler": "ramp" if name == "ramp_horizons" else "adaptive", name: value})
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
        {"calm_reading": 0.6, "volatile_reading": 0.5},
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


def test_every_option_says_what_it_does():
    assert set(options()) == set(FIELDS)
    for name, option in options().items():
        assert option.text.rstrip(")").endswith("."), name
        assert option.default == next(field.default for field in dataclasses.fields(RunConfig) if field.name == name)


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


def test_small_envs_have_a_gradient_step_for_every_eight_samples():
    config = make_config("MinAtar/Breakout-v1")
    assert config.num_envs * config.horizon / config.minibatches == 8
    for env in ("CartPole-v1", "LunarLander-v3"):
        config = make_config(env)
        assert (config.minibatch_rule, config.minibatch_size) == ("size", 8)


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
    from swell.batch import rules
    from swell.networks.q_networks import MULTI_SKIP_BLOCKS, SMALLEST_IMAGES
    from swell.runs.build import LEARNERS, make_scaler, make_signal

    assert get_args(HINTS["algorithm"]) == tuple(run_config.ALGORITHMS) == tuple(LEARNERS)
    assert set(OPEN_CHOICES["scaler"]) == set(SCALERS)
    assert set(OPEN_CHOICES["signal"]) == {"auto", *SIGNALS} == {"auto", *get_args(run_config.SignalName)}
    assert set(OPEN_CHOICES["network"]) == {"auto", "mlp", "nature-cnn", *SMALLEST_IMAGES, *MULTI_SKIP_BLOCKS}
    assert get_args(get_args(HINTS["invariance_rules"])[0]) == rules.ALL_RULES
    assert RunConfig("env").invariance_rules == rules.DEFAULT_RULES
    for signal in SIGNALS:
        assert make_signal(RunConfig("env", **fields_for(SIGNALS, signal))).name == signal
    kinds = [type(make_scaler(RunConfig("env", scaler=scaler), None)).__name__ for scaler in SCALERS]
    assert kinds == ["AdaptiveScaler", "FixedScaler", "RampScaler", "NoiseScaleScaler"]


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


RULES = [
    (
        {"calm_reading": 0.6, "volatile_reading": 0.5},
        "calm_reading must be less than volatile_reading, got 0.6 and 0.5",
    ),
    (
        {"algorithm": "ppo", "signal": "effective_sample_size"},
        "calm_reading must be more than volatile_reading for effective_sample_size, got 0.05 and 0.95",
    ),
    (
        {"target_return": 1.0, "evaluate_every": 9, "evaluation_episodes": 0},
        "target_return needs evaluation_episodes of at least 1, got 1.0 and 0",
    ),
    ({"env_kwargs": ("gravity",)}, "env_kwargs must be key=value, got 'gravity'"),
    (
        {"wrappers": ("Doubled",)},
        "wrappers must be module:name each, got 'Doubled'; what has no name, put into env",
    ),
    ({"target_return": 1.0}, "target_return needs evaluate_every of at least 1, got 1.0 and 0"),
    (
        {"scaler": "noise-scale", "signal": "behavioral_divergence"},
        "signal must be gradient_noise_scale for the noise-scale scaler, got behavioral_divergence",
    ),
    (
        {"signal": "gradient_noise_scale"},
        "scaler must be noise-scale (or fixed) for the signal gradient_noise_scale, got adaptive",
    ),
    (
        {"signal": "kl_divergence"},
        "signal kl_divergence needs a stochastic policy, got pqn; try --algorithm ppo",
    ),
    (
        {"signal": "effective_sample_size", "calm_reading": 0.9, "volatile_reading": 0.5},
        "signal effective_sample_size needs a stochastic policy, got pqn; try --algorithm ppo",
    ),
    (
        {"normalize_rewards": True},
        "normalize_rewards is not read by pqn, got True; it belongs to ppo, ppo-ewma, ppg, ppg-ewma and ess",
    ),
    ({"staleness": 2}, "staleness is not read by pqn, got 2; it belongs to ppo, ppo-ewma, ppg, ppg-ewma and ess"),
    (
        {"algorithm": "ppg-ewma", "staleness_mode": "recent"},
        "staleness_mode is not read by ppg-ewma, got recent; it belongs to ppo and ppg",
    ),
    (
        {"algorithm": "ppo", "learning_rate_rule": "sqrt"},
        "learning_rate_rule is not read by ppo, got sqrt; it belongs to pqn",
    ),
]


@pytest.mark.parametrize(("fields", "line"), RULES, ids=[line for _, line in RULES])
def test_a_contradiction_between_components_is_one_line_that_names_the_field(fields, line):
    with pytest.raises(ConfigError) as caught:
        RunConfig(CARTPOLE, **fields)
    assert list(caught.value.faults) == [line]
    assert caught.value.exit_code == 2


def test_every_rule_has_an_example():
    from swell.config import runs

    for module in (run_config, runs):
        assert rules_met(module, [fields for fields, _ in RULES]) == set(rules_of(module)) != set()


@pytest.mark.parametrize(
    "fields",
    [
        {"signal": "gradient_noise_scale", "scaler": "fixed"},
        {"signal": "gradient_noise_scale", "scaler": "noise-scale"},
        {"algorithm": "ppo", "signal": "effective_sample_size", "calm_reading": 0.9, "volatile_reading": 0.5},
        {"signal": "my.module:Signal", "calm_reading": 0.9, "volatile_reading": 0.5},
        {"scaler": "module:Scaler", "network": "module:make", "signal": "module:Signal"},
    ],
    ids=str,
)
def test_what_goes_together_is_accepted(fields):
    config = RunConfig(CARTPOLE, **fields)
    assert {name: getattr(config, name) for name in fields} == fields


def test_all_contradictions_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        RunConfig(CARTPOLE, normalize_rewards=True, staleness=1, min_horizon=99, invariance="on", invariance_rules=())
    assert len(caught.value.faults) == 4


FOREIGN = [
    *[(SCALERS, scaler, f"the {scaler} scaler", name) for scaler in SCALERS for name in foreign(SCALERS, scaler)],
    *[(SIGNALS, signal, f"the signal {signal}", name) for signal in SIGNALS for name in foreign(SIGNALS, signal)],
]


@pytest.mark.parametrize(
    ("table", "key", "reader", "name"), FOREIGN, ids=[f"{key}-{name}" for _, key, _, name in FOREIGN]
)
@pytest.mark.parametrize("at_default", [True, False], ids=["default", "another"])
def test_an_option_of_another_scaler_or_signal_may_not_be_named(table, key, reader, name, at_default, tmp_path):
    from swell.runs.start import run

    chosen = fields_for(table, key)
    given = {name: options()[name].default if at_default else another_value(table, name)}
    line = f"{name} is not read by {reader}; it belongs to {listed(readers(table, name))}"
    assert getattr(RunConfig(CARTPOLE, **chosen, **given), name) == given[name]  # a preset may leave it there
    for made in (
        lambda: make_config(CARTPOLE, **chosen, **given),
        lambda: changed(RunConfig(CARTPOLE, **chosen), **given),
        lambda: run(CARTPOLE, tmp_path / "run", **chosen, **given),
        lambda: run(RunConfig(CARTPOLE, **chosen), tmp_path / "run", **given),
    ):
        with pytest.raises(ConfigError) as caught:
            made()
        assert list(caught.value.faults) == [line]
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_foreign_options_is_long():
    assert {key for _, key, _, _ in FOREIGN} == {*SCALERS, *SIGNALS}
    assert len(FOREIGN) >= 40


def test_a_part_of_the_users_own_may_read_all_options_of_its_kind():
    own = make_config(CARTPOLE, scaler="module:Scaler", ramp_horizons=(4, 8), batch_per_noise_scale=2.0, history=3)
    assert (own.ramp_horizons, own.batch_per_noise_scale, own.history) == ((4, 8), 2.0, 3)
    signal = make_config(CARTPOLE, scaler="fixed", signal="module:Signal", probe_states=7, noise_averaging=0.5)
    assert (signal.probe_states, signal.noise_averaging) == (7, 0.5)


@pytest.mark.parametrize(
    "made",
    [
        lambda: make_config(CARTPOLE, clip_ranges=0.1),
        lambda: changed(RunConfig(CARTPOLE), clip_ranges=0.1),
        lambda: config_from_dict({"env": CARTPOLE, "clip_ranges": 0.1}),
    ],
    ids=["make_config", "changed", "config_from_dict"],
)
def test_an_unknown_option_is_refused_with_the_nearest_name_everywhere(made):
    with pytest.raises(ConfigError) as caught:
        made()
    assert list(caught.value.faults) == ["unknown option clip_ranges; did you mean clip_range?"]


def test_only_the_env_may_be_given_by_position():
    assert RunConfig(CARTPOLE, seed=4).seed == 4
    with pytest.raises(TypeError):
        RunConfig(CARTPOLE, "ppo")


def test_a_config_of_the_previous_version_is_read():
    """It held options that are gone, at the value that did nothing, and values of options that its run never read."""
    stored = RunConfig(CARTPOLE, algorithm="ppo", clip_range=0.3).to_dict()
    stored |= {"overlap": False, "horizon_multiple": 1}
    stored |= {"epsilon_start": 0.7, "phase_env_steps": 9, "kl_penalty": 0.1, "proximal_decay": 0.5}
    read = config_from_dict(json.loads(json.dumps(stored)))
    assert read == RunConfig(CARTPOLE, algorithm="ppo", clip_range=0.3)
    assert config_from_dict(json.loads(json.dumps(read.to_dict()))) == read


@pytest.mark.parametrize("removed", [{"overlap": True}, {"horizon_multiple": 4}])
def test_an_option_that_is_gone_and_was_in_use_is_refused(removed):
    with pytest.raises(ConfigError, match=f"unknown option {next(iter(removed))}"):
        config_from_dict({**RunConfig(CARTPOLE).to_dict(), **removed})


def test_a_stored_value_that_the_run_does_read_is_checked():
    with pytest.raises(ConfigError, match="clip_range must be"):
        config_from_dict({**RunConfig(CARTPOLE, algorithm="ppo").to_dict(), "clip_range": 7.0})
