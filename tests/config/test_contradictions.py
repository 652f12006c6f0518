"""Options that are wrong together: one line for each, which names the field and the way out."""

import ast
import dataclasses
import inspect

import pytest

from swell.config import contradictions
from swell.config.run_config import RunConfig
from swell.errors import ConfigError

RULES = [
    ({"overlap": True, "num_envs": 7}, "num_envs must be even with overlap, which steps them in two halves, got 7"),
    ({"overlap": True, "num_envs": 1}, "num_envs must be even with overlap, which steps them in two halves, got 1"),
    ({"min_horizon": 128}, "min_horizon must be at most max_horizon, got 128 and 64"),
    ({"ramp_horizons": ()}, "ramp_horizons must hold at least one horizon, got ()"),
    ({"horizon_multiple": 32}, "min_horizon must be a multiple of horizon_multiple, got 16 and 32"),
    (
        {"horizon_multiple": 16, "max_horizon": 100},
        "max_horizon must be a multiple of horizon_multiple, got 100 and 16",
    ),
    (
        {"horizon_multiple": 5, "scaler": "fixed"},
        "horizon must be a multiple of horizon_multiple, got 32 and 5",
    ),
    (
        {"horizon_multiple": 16, "scaler": "ramp", "ramp_horizons": (16, 40, 64)},
        "ramp_horizons must be a multiple of horizon_multiple, got (16, 40, 64) and 16",
    ),
    (
        {"calm_reading": 0.5, "volatile_reading": 0.5},
        "calm_reading must be less than volatile_reading, got 0.5 and 0.5",
    ),
    (
        {"algorithm": "ppo", "signal": "effective_sample_size"},
        "calm_reading must be more than volatile_reading for effective_sample_size, got 0.05 and 0.95",
    ),
    (
        {"target_return": 1.0, "evaluate_every": 9, "evaluation_episodes": 0},
        "target_return needs evaluation_episodes of at least 1, got 1.0 and 0",
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
        "signal kl_divergence needs a stochastic policy, got pqn; choose another algorithm, for example ppo",
    ),
    (
        {"signal": "effective_sample_size", "calm_reading": 0.9, "volatile_reading": 0.5},
        "signal effective_sample_size needs a stochastic policy, got pqn; choose another algorithm, for example ppo",
    ),
    (
        {"normalize_rewards": True},
        "normalize_rewards must be off for pqn, got on; choose another algorithm, for example ppo",
    ),
    (
        {"normalize_observations": True},
        "normalize_observations must be off for pqn, got on; choose another algorithm, for example ppo",
    ),
    ({"staleness": 2}, "staleness must be 0 for pqn, got 2; choose another algorithm, for example ppo"),
    *[
        (
            {"algorithm": algorithm, "staleness_mode": mode, "advantage_norm": "batch"},
            f"staleness_mode must be decoupled for {algorithm}, got {mode}; ppo and ppg have more",
        )
        for algorithm in ("ppo-ewma", "ppg-ewma", "ess")
        for mode in ("behavior", "recent")
    ],
    *[
        (
            {"algorithm": algorithm, "kl_penalty": 0.5},
            f"kl_penalty must be 0 for {algorithm}, got 0.5; see ppo-ewma",
        )
        for algorithm in ("ppo", "ess")
    ],
    (
        {"algorithm": "ppo", "clip_range": 0.0},
        "clip_range must be more than 0 for ppo, got 0; ppo-ewma can go without",
    ),
    *[
        ({"algorithm": algorithm}, f"advantage_norm must be batch or none for {algorithm}, got minibatch")
        for algorithm in ("ppo-ewma", "ppg", "ppg-ewma")
    ],
    *[
        (
            {"algorithm": algorithm, "advantage_norm": "batch", "target_kl": 0.02},
            f"target_kl must be none for {algorithm}, got 0.02",
        )
        for algorithm in ("ppo-ewma", "ppg", "ppg-ewma")
    ],
    (
        {"algorithm": "ppo", "learning_rate_rule": "sqrt"},
        "learning_rate_rule must be constant for ppo, got sqrt; see --invariance on",
    ),
    (
        {"invariance": "on", "learning_rate_rule": "sqrt"},
        "learning_rate_rule must be constant with invariance on, which has that rule, got sqrt",
    ),
    (
        {"invariance": "on", "invariance_rules": ()},
        "invariance_rules must name at least one rule with invariance on, got ()",
    ),
]


@pytest.mark.parametrize(("fields", "line"), RULES, ids=[line for _, line in RULES])
def test_a_contradiction_is_one_line_that_names_the_field(fields, line):
    with pytest.raises(ConfigError) as caught:
        RunConfig("CartPole-v1", **fields)
    assert list(caught.value.faults) == [line]
    assert caught.value.exit_code == 2


def unchecked(**fields):
    """A config that nobody has looked at."""
    config = object.__new__(RunConfig)
    for field in dataclasses.fields(RunConfig):
        object.__setattr__(config, field.name, fields.get(field.name, field.default))
    return config


def test_every_rule_has_an_example():
    rules = [node.lineno for node in ast.walk(ast.parse(inspect.getsource(contradictions))) if type(node) is ast.Yield]
    assert len(rules) >= 15
    checks = [check for name, check in vars(contradictions).items() if inspect.isgeneratorfunction(check)]
    met = set()
    for fields, _ in RULES:
        for check in checks:
            faults = check(unchecked(env="CartPole-v1", **fields))
            met |= {faults.gi_frame.f_lineno for _ in faults}
    assert met == set(rules)


@pytest.mark.parametrize(
    "fields",
    [
        {"algorithm": "ppo", "staleness": 2, "staleness_mode": "recent"},
        {"algorithm": "ppg", "staleness": 2, "staleness_mode": "behavior", "advantage_norm": "batch"},
        {"algorithm": "ppo-ewma", "clip_range": 0.0, "kl_penalty": 1.0, "advantage_norm": "none"},
        {"algorithm": "ess", "target_kl": 0.1},
        {"algorithm": "ppo", "target_kl": 0.1, "normalize_rewards": True, "normalize_observations": True},
        {"signal": "gradient_noise_scale", "scaler": "fixed"},
        {"signal": "gradient_noise_scale", "scaler": "noise-scale"},
        {"invariance": "off", "invariance_rules": (), "learning_rate_rule": "sqrt"},
    ],
    ids=str,
)
def test_what_goes_together_is_accepted(fields):
    config = RunConfig("CartPole-v1", **fields)
    assert {name: getattr(config, name) for name in fields} == fields


def test_all_contradictions_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        RunConfig(
            "CartPole-v1", normalize_rewards=True, staleness=1, min_horizon=99, invariance="on", invariance_rules=()
        )
    assert len(caught.value.faults) == 4


def test_a_field_that_is_wrong_by_itself_is_not_blamed_twice():
    with pytest.raises(ConfigError) as caught:
        RunConfig("CartPole-v1", algorithm="ppo", kl_penalty=-1.0)
    (line,) = caught.value.faults
    assert line.startswith("kl_penalty must be a finite number")
