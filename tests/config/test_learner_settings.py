"""Settings of the learners: each algorithm has exactly the options that it reads, and says what is wrong together."""

import pytest
from settings_checks import CARTPOLE, another_value, foreign, listed, names_of, readers, rules_met, rules_of

from swell.config import learners
from swell.config.learners import (
    ESSSettings,
    LearnerSettings,
    PPGEWMASettings,
    PPGSettings,
    PPOEWMASettings,
    PPOSettings,
    PQNSettings,
)
from swell.config.options import options
from swell.config.run_config import ALGORITHMS, RunConfig, config_from_dict
from swell.errors import ConfigError
from swell.presets import make_config

RULES = [
    (
        "ppo",
        {"clip_range": 0.0},
        "clip_range must be more than 0 for ppo, got 0; ppo-ewma can go without",
    ),
    *[
        (
            algorithm,
            {"advantage_norm": "minibatch"},
            "advantage_norm must be batch or none for ppo-ewma, ppg and ppg-ewma, got minibatch",
        )
        for algorithm in ("ppo-ewma", "ppg", "ppg-ewma")
    ],
    (
        "pqn",
        {"invariance": "on", "learning_rate_rule": "sqrt"},
        "learning_rate_rule must be constant with invariance on, which has that rule, got sqrt",
    ),
    *[
        (
            algorithm,
            {"invariance": "on", "invariance_rules": ()},
            "invariance_rules must name at least one rule with invariance on, got ()",
        )
        for algorithm in ALGORITHMS
    ],
    *[
        (
            algorithm,
            {"path": "compiled", "precision": "bfloat16"},
            "precision must be float32 on the compiled path, got bfloat16",
        )
        for algorithm in ALGORITHMS
    ],
]
FOREIGN = [(algorithm, name) for algorithm in ALGORITHMS for name in foreign(ALGORITHMS, algorithm)]


@pytest.mark.parametrize(("algorithm", "fields", "line"), RULES, ids=[f"{rule[0]}: {rule[2]}" for rule in RULES])
def test_a_contradiction_is_one_line_that_names_the_field(algorithm, fields, line):
    for made in (
        lambda: ALGORITHMS[algorithm](**fields),
        lambda: RunConfig(CARTPOLE, algorithm=algorithm, **fields),
    ):
        with pytest.raises(ConfigError) as caught:
            made()
        assert list(caught.value.faults) == [line]
        assert caught.value.exit_code == 2


def test_every_rule_has_an_example():
    examples = [{"algorithm": algorithm, **fields} for algorithm, fields, _ in RULES]
    assert rules_met(learners, examples) == set(rules_of(learners)) != set()


@pytest.mark.parametrize(
    "fields",
    [
        {"algorithm": "ppo", "staleness": 2, "staleness_mode": "recent"},
        {"algorithm": "ppg", "staleness": 2, "staleness_mode": "behavior", "advantage_norm": "batch"},
        {"algorithm": "ppo-ewma", "clip_range": 0.0, "kl_penalty": 1.0, "advantage_norm": "none"},
        {"algorithm": "ess", "target_kl": 0.1},
        {"algorithm": "ppo", "target_kl": 0.1, "normalize_rewards": True, "normalize_observations": True},
        {"invariance": "off", "invariance_rules": (), "learning_rate_rule": "sqrt"},
    ],
    ids=str,
)
def test_what_goes_together_is_accepted(fields):
    config = RunConfig(CARTPOLE, **fields)
    assert {name: getattr(config, name) for name in fields} == fields


def test_a_field_that_is_wrong_by_itself_is_not_blamed_twice():
    with pytest.raises(ConfigError) as caught:
        RunConfig(CARTPOLE, algorithm="ppo", kl_penalty=-1.0)
    (line,) = caught.value.faults
    assert line.startswith("kl_penalty must be a finite number")


@pytest.mark.parametrize(
    ("algorithm", "settings", "own"),
    [
        ("pqn", PQNSettings, {"epsilon_start", "loss_coefficient", "learning_rate_rule", "multi_skip_head"}),
        ("ppo", PPOSettings, {"clip_range", "target_kl", "staleness_mode"}),
        ("ess", ESSSettings, {"ess_scope", "ess_penalty", "target_kl"}),
        ("ppo-ewma", PPOEWMASettings, {"clip_range", "kl_penalty", "advantage_decay", "proximal_decay"}),
        ("ppg", PPGSettings, {"kl_penalty", "phase_env_steps", "staleness_mode"}),
        ("ppg-ewma", PPGEWMASettings, {"kl_penalty", "phase_env_steps", "proximal_decay"}),
    ],
)
def test_an_algorithm_reads_its_own_options_and_those_of_all(algorithm, settings, own):
    assert ALGORITHMS[algorithm] is settings
    assert (
        own | names_of(LearnerSettings) <= names_of(settings) <= RunConfig(CARTPOLE, algorithm=algorithm).read_options
    )
    everything = {name for kind in ALGORITHMS.values() for name in names_of(kind)}
    assert names_of(settings).isdisjoint(foreign(ALGORITHMS, algorithm))
    assert names_of(settings) | set(foreign(ALGORITHMS, algorithm)) == everything


def test_there_are_many_foreign_options():
    assert len(FOREIGN) >= 80
    assert {algorithm for algorithm, _ in FOREIGN} == set(ALGORITHMS)


@pytest.mark.parametrize(("algorithm", "name"), FOREIGN)
def test_an_option_that_the_algorithm_does_not_read_is_a_fault_in_one_line(algorithm, name, tmp_path):
    from swell.runs.start import run

    value, owners = another_value(ALGORITHMS, name), listed(readers(ALGORITHMS, name))
    line = f"{name} is not read by {algorithm}, got {value}; it belongs to {owners}"
    given = {name: value}
    for made in (
        lambda: RunConfig(CARTPOLE, algorithm=algorithm, **given),
        lambda: make_config(CARTPOLE, algorithm=algorithm, **given),
        lambda: run(CARTPOLE, tmp_path / "run", algorithm=algorithm, **given),
        lambda: run(make_config(CARTPOLE, algorithm=algorithm), tmp_path / "run", **given),
    ):
        with pytest.raises(ConfigError) as caught:
            made()
        assert list(caught.value.faults) == [line]
        assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("algorithm", "name"), FOREIGN)
def test_to_name_it_at_its_default_is_the_same_fault(algorithm, name, tmp_path):
    from swell.runs.start import run

    given = {name: options()[name].default}
    line = f"{name} is not read by {algorithm}; it belongs to {listed(readers(ALGORITHMS, name))}"
    assert RunConfig(CARTPOLE, algorithm=algorithm, **given) == RunConfig(CARTPOLE, algorithm=algorithm)
    for made in (
        lambda: make_config(CARTPOLE, algorithm=algorithm, **given),
        lambda: run(CARTPOLE, tmp_path / "run", algorithm=algorithm, **given),
        lambda: run(make_config(CARTPOLE, algorithm=algorithm), tmp_path / "run", **given),
    ):
        with pytest.raises(ConfigError) as caught:
            made()
        assert list(caught.value.faults) == [line]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_earlier_versions_stored_of_options_that_they_never_read_is_forgotten(algorithm):
    stored = RunConfig(CARTPOLE, algorithm=algorithm, seed=3).to_dict()
    stored |= {name: another_value(ALGORITHMS, name) for name in foreign(ALGORITHMS, algorithm)}
    assert config_from_dict(stored) == RunConfig(CARTPOLE, algorithm=algorithm, seed=3)
