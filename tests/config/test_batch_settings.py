"""Settings of the batch: what is wrong together is one line, by hand and in a run alike."""

import pytest
from settings_checks import CARTPOLE, rules_met, rules_of

from swell.config import batch
from swell.config.batch import AdaptiveSettings, BatchSettings, NoiseScaleSettings, RampSettings
from swell.config.run_config import RunConfig
from swell.errors import ConfigError

RULES = [
    (AdaptiveSettings, {"min_horizon": 128}, "min_horizon must be at most max_horizon, got 128 and 64"),
    (
        NoiseScaleSettings,
        {"scaler": "noise-scale", "min_horizon": 128},
        "min_horizon must be at most max_horizon, got 128 and 64",
    ),
    (
        RampSettings,
        {"scaler": "ramp", "ramp_horizons": ()},
        "ramp_horizons must hold at least one horizon, got ()",
    ),
    (
        AdaptiveSettings,
        {"calm_reading": 0.5, "volatile_reading": 0.5},
        "calm_reading must differ from volatile_reading, got 0.5 for both",
    ),
]


@pytest.mark.parametrize(("kind", "fields", "line"), RULES, ids=[f"{rule[0].__name__}: {rule[2]}" for rule in RULES])
def test_a_contradiction_is_one_line_that_names_the_field(kind, fields, line):
    for made in (lambda: kind(**fields), lambda: RunConfig(CARTPOLE, **fields)):
        with pytest.raises(ConfigError) as caught:
            made()
        assert list(caught.value.faults) == [line]
        assert caught.value.exit_code == 2


def test_every_rule_has_an_example():
    assert rules_met(batch, [fields for _, fields, _ in RULES]) == set(rules_of(batch)) != set()


@pytest.mark.parametrize(
    "fields",
    [
        {"scaler": "fixed", "min_horizon": 128},
        {"scaler": "fixed", "calm_reading": 0.5, "volatile_reading": 0.5},
        {"scaler": "adaptive", "ramp_horizons": ()},
    ],
    ids=str,
)
def test_what_a_run_does_not_read_cannot_contradict_it(fields):
    config = RunConfig(CARTPOLE, **fields)
    assert {name: getattr(config, name) for name in fields} == fields


def test_settings_by_hand_name_every_fault_at_once():
    with pytest.raises(ConfigError) as caught:
        AdaptiveSettings(min_horizon=128, epochs=0, smoothing=0.0)
    assert len(caught.value.faults) == 3
    assert BatchSettings() == BatchSettings(horizon=32)
