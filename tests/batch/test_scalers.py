"""Scalers: bounds, monotonicity, both ends reachable, the release's stall reproduced; and made by hand."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from swell.batch.noise_scale import LARGEST_NOISE_SCALE
from swell.batch.scalers import (
    AdaptiveScaler,
    FixedScaler,
    HorizonScaler,
    NoiseScaleScaler,
    RampScaler,
    batch_plan,
    nonstationarity,
    steps_of,
)
from swell.config.batch import AdaptiveSettings, BatchSettings, NoiseScaleSettings, RampSettings
from swell.errors import ConfigError
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

NUM_ENVS = 128
EFFORT = {"epochs": 2, "horizon": 32, "minibatch_rule": "count", "minibatches": 4, "minibatch_size": 512}
SETTINGS = BatchSettings(**EFFORT)
RULE = AdaptiveSettings(**EFFORT, min_horizon=16, max_horizon=64, calm_reading=0.05, volatile_reading=0.95)
RELEASE = replace(RULE, history=20, warmup_readings=10, rounding="truncate")
NOISE_RULE = NoiseScaleSettings(**EFFORT, min_horizon=16, max_horizon=64, batch_per_noise_scale=1.0, smoothing=1.0)
READINGS = st.floats(0, 1)
RULES = st.builds(
    lambda low, extra, smoothing, interpolation, history: replace(
        RULE,
        min_horizon=low,
        max_horizon=low + extra,
        smoothing=smoothing,
        interpolation=interpolation,
        history=history,
    ),
    st.integers(1, 100),
    st.integers(0, 200),
    st.floats(0.02, 1),
    st.sampled_from(["log", "linear"]),
    st.integers(1, 25),
)


def horizon(scaler):
    return scaler.plan(0.0).horizon


def target(rule, reading):
    return AdaptiveScaler(rule, num_envs=NUM_ENVS).target(reading)


def plan(settings, length):
    return batch_plan(settings, NUM_ENVS, length)


def after(rule, readings):
    scaler = AdaptiveScaler(rule, num_envs=NUM_ENVS)
    for reading in readings:
        scaler.adjust(reading)
    return horizon(scaler)


@given(RULES, st.lists(READINGS, max_size=40))
def test_the_horizon_stays_within_its_bounds(rule, readings):
    assert rule.min_horizon <= after(rule, readings) <= rule.max_horizon


@given(RULES, READINGS, READINGS)
def test_a_more_volatile_policy_never_gets_a_longer_target(rule, one, other):
    calm, volatile = sorted((one, other))
    assert target(rule, volatile) <= target(rule, calm)


@given(RULES)
def test_lasting_calm_reaches_the_longest_horizon_and_lasting_change_the_shortest(rule):
    spread = rule.max_horizon - rule.min_horizon
    enough = rule.history + math.ceil(math.log(0.4 / (spread + 1)) / math.log(1 - min(rule.smoothing, 0.99))) + 1
    scaler = AdaptiveScaler(rule, num_envs=NUM_ENVS)
    for _ in range(enough):
        scaler.adjust(0.0)
    assert horizon(scaler) == rule.max_horizon
    for _ in range(enough + rule.history):
        scaler.adjust(1.0)
    assert horizon(scaler) == rule.min_horizon


@given(RULES, st.lists(READINGS, min_size=1, max_size=30))
def test_one_reading_moves_the_horizon_by_at_most_the_smoothing(rule, readings):
    scaler = AdaptiveScaler(rule, num_envs=NUM_ENVS)
    for reading in readings:
        before = scaler.state_dict()["horizon"]
        scaler.adjust(reading)
        limit = rule.smoothing * (rule.max_horizon - rule.min_horizon)
        assert abs(scaler.state_dict()["horizon"] - before) <= limit + 1e-9


def test_the_thresholds_map_to_the_exact_ends():
    for interpolation in ("log", "linear"):
        assert nonstationarity(0.05, 0.05, 0.95, interpolation) == 0.0
        assert nonstationarity(0.95, 0.05, 0.95, interpolation) == 1.0
        assert nonstationarity(0.0, 0.05, 0.95, interpolation) == 0.0


@pytest.mark.parametrize("interpolation", ["log", "linear"])
def test_calm_may_be_the_larger_threshold(interpolation):
    """As with the effective sample size, which falls as the policy moves."""
    shares = [nonstationarity(reading, 0.9, 0.3, interpolation) for reading in (1.0, 0.9, 0.6, 0.3, 0.0)]
    assert (shares[0], shares[1], shares[3], shares[4]) == (0.0, 0.0, 1.0, 1.0)
    expected = 0.5 if interpolation == "linear" else math.log(0.9 / 0.6) / math.log(0.9 / 0.3)
    assert shares[2] == pytest.approx(expected)
    rule = replace(RULE, calm_reading=0.9, volatile_reading=0.3, interpolation=interpolation)
    assert (target(rule, 1.0), target(rule, 0.3)) == (64.0, 16.0)


@given(READINGS, st.sampled_from(["log", "linear"]))
def test_swapping_the_thresholds_turns_the_rule_around(reading, interpolation):
    one = nonstationarity(reading, 0.05, 0.95, interpolation)
    assert nonstationarity(reading, 0.95, 0.05, interpolation) == pytest.approx(1.0 - one)


@pytest.mark.parametrize(
    ("reading", "target_64", "target_128"), [(0.1, 52.70, 101.63), (0.2, 41.40, 75.27), (0.5, 26.47, 40.42)]
)
def test_log_interpolation_gives_the_published_targets(reading, target_64, target_128):
    assert target(RULE, reading) == pytest.approx(target_64, abs=0.01)
    assert target(replace(RULE, max_horizon=128), reading) == pytest.approx(target_128, abs=0.01)


@pytest.mark.parametrize(("longest", "stall"), [(64, 55), (128, 119)])
def test_truncation_stalls_where_the_public_release_stalls(longest, stall):
    assert after(replace(RELEASE, max_horizon=longest), [0.0] * 1000) == stall
    assert after(replace(RELEASE, max_horizon=longest, rounding="nearest"), [0.0] * 1000) == longest


@pytest.mark.parametrize(("reading", "equilibrium"), [(0.1, 43), (0.2, 32), (0.3, 25), (0.5, 17)])
def test_truncation_settles_where_the_public_release_settles(reading, equilibrium):
    assert after(RELEASE, [reading] * 1000) == equilibrium


def test_a_warm_up_holds_the_horizon_until_enough_readings_were_taken():
    assert after(RELEASE, [0.0] * 9) == 16
    assert after(RELEASE, [0.0] * 10) > 16


def test_history_averages_readings_before_the_rule_sees_them():
    jump = replace(RULE, smoothing=1.0, history=2)
    assert after(jump, [0.1, 0.3]) == after(replace(jump, history=1), [0.2])


@pytest.mark.parametrize(
    "scaler", [AdaptiveScaler(RULE, num_envs=NUM_ENVS), NoiseScaleScaler(NOISE_RULE, num_envs=NUM_ENVS)]
)
@pytest.mark.parametrize("reading", [math.nan, math.inf, -0.1])
def test_a_reading_that_is_no_amount_is_refused(scaler, reading):
    with pytest.raises(ValueError, match="reading"):
        scaler.adjust(reading)


def test_a_restored_scaler_goes_on_exactly():
    readings = [0.9, 0.4, 0.2, 0.1, 0.3]
    rule = replace(RULE, history=3, warmup_readings=2)
    scaler = AdaptiveScaler(rule, num_envs=NUM_ENVS)
    for reading in readings:
        scaler.adjust(reading)
    restored = AdaptiveScaler(rule, num_envs=NUM_ENVS)
    restored.load_state_dict(scaler.state_dict())
    for twin in (scaler, restored):
        twin.adjust(0.05)
    assert restored.state_dict() == scaler.state_dict()


@given(st.floats(0, 1e5), st.integers(1, 8), st.floats(0.1, 4))
def test_a_fixed_number_of_minibatches_makes_each_as_large_as_the_noise_scale(noise_scale, minibatches, ratio):
    scaler = NoiseScaleScaler(
        replace(NOISE_RULE, minibatches=minibatches, batch_per_noise_scale=ratio), num_envs=NUM_ENVS
    )
    scaler.adjust(noise_scale)
    if 16 < horizon(scaler) < 64:
        one_step = 128 / minibatches  # the minibatch is whole env steps, so this is how near it can come
        assert 128 * horizon(scaler) / minibatches == pytest.approx(ratio * noise_scale, abs=0.51 * one_step)


def test_minibatches_of_a_fixed_size_make_the_rollout_as_large_as_the_noise_scale():
    scaler = NoiseScaleScaler(replace(NOISE_RULE, minibatch_rule="size"), num_envs=NUM_ENVS)
    scaler.adjust(128 * 40.0)
    assert horizon(scaler) == 40


def test_the_noise_scale_stays_within_the_bounds_and_an_infinite_one_asks_for_the_largest_batch():
    scaler = NoiseScaleScaler(NOISE_RULE, num_envs=NUM_ENVS)
    assert horizon(scaler) == 16
    for reading, expected in [(LARGEST_NOISE_SCALE, 64), (0.0, 16), (1e300, 64)]:
        scaler.adjust(reading)
        assert horizon(scaler) == expected


def test_an_infinite_noise_scale_moves_a_smoothed_horizon_no_faster_than_the_largest_batch_would():
    smooth = replace(NOISE_RULE, smoothing=0.25)
    infinite, large = (NoiseScaleScaler(smooth, num_envs=NUM_ENVS) for _ in range(2))
    infinite.adjust(LARGEST_NOISE_SCALE)
    large.adjust(64 * 128 / 4)
    assert infinite.state_dict() == large.state_dict() == {"horizon": 28.0}
    for _ in range(20):
        infinite.adjust(LARGEST_NOISE_SCALE)
    assert horizon(infinite) == 64


def test_a_restored_noise_scale_scaler_goes_on_exactly():
    rule = replace(NOISE_RULE, smoothing=0.3)
    scaler, restored = (NoiseScaleScaler(rule, num_envs=NUM_ENVS) for _ in range(2))
    scaler.adjust(1000.0)
    restored.load_state_dict(scaler.state_dict())
    for twin in (scaler, restored):
        twin.adjust(1500.0)
    assert restored.state_dict() == scaler.state_dict()


def test_a_fixed_scaler_ignores_every_reading():
    scaler = FixedScaler(SETTINGS, num_envs=NUM_ENVS)
    scaler.adjust(0.0)
    assert horizon(scaler) == 32


@pytest.mark.parametrize(("length", "epochs"), [(16, 2), (32, 2), (47, 2), (48, 3), (64, 4), (119, 7), (128, 8)])
def test_the_scale_rule_makes_the_epochs_of_the_public_release(length, epochs):
    assert plan(replace(SETTINGS, epoch_rule="scale"), length).epochs == epochs


@pytest.mark.parametrize(("length", "epochs"), [(1024, 5), (2048, 10), (8192, 40), (100, 1)])
def test_the_proportional_rule_makes_those_of_its_ppo(length, epochs):
    settings = replace(SETTINGS, epochs=10, horizon=2048, epoch_rule="proportional")
    assert plan(settings, length).epochs == epochs
    assert plan(SETTINGS, length).epochs == 2


@given(st.integers(4, 256))
def test_the_size_rule_keeps_gradient_steps_per_sample(length):
    by_size = replace(SETTINGS, minibatch_rule="size")
    minibatches = plan(by_size, length).minibatches
    assert 128 * length / minibatches == pytest.approx(512, rel=0.5)
    assert plan(by_size, 4 * length).minibatches == pytest.approx(4 * minibatches, abs=2)
    assert plan(SETTINGS, length).minibatches == 4


def test_a_ramp_interpolates_between_its_points():
    ramp = RampScaler(num_envs=NUM_ENVS, points=[(0.0, 16.0), (0.5, 64.0), (1.0, 32.0)])
    assert [ramp.plan(progress).horizon for progress in (0.0, 0.25, 0.5, 0.75, 1.0)] == [16, 40, 64, 48, 32]


def test_a_replayed_trajectory_holds_each_horizon_until_the_next():
    ramp = RampScaler(num_envs=NUM_ENVS, points=steps_of([(0.0, 16.0), (0.3, 20.0), (0.6, 18.0)]))
    assert [ramp.plan(progress).horizon for progress in (0.0, 0.29, 0.3, 0.59, 0.6, 1.0)] == [16, 16, 20, 20, 18, 18]


@given(st.lists(READINGS, max_size=40))
def test_an_adaptive_horizon_is_planned_in_whole_steps_and_kept_to_a_fraction(readings):
    scaler = AdaptiveScaler(RULE, num_envs=NUM_ENVS)
    for reading in readings:
        scaler.adjust(reading)
        assert abs(horizon(scaler) - scaler.state_dict()["horizon"]) <= 0.5


@pytest.mark.parametrize(("wanted", "steps"), [(0.2, 1), (1.49, 1), (1.5, 2), (36.5, 37), (37.49, 37)])
def test_a_horizon_is_rounded_to_at_least_one_step(wanted, steps):
    assert plan(SETTINGS, wanted).horizon == steps


def test_the_number_of_minibatches_follows_the_rounded_horizon():
    assert plan(replace(SETTINGS, minibatch_rule="size"), 36.6).minibatches == round(37 * 128 / 512)


@pytest.mark.parametrize(
    ("scaler", "settings"),
    [
        (FixedScaler, BatchSettings),
        (HorizonScaler, BatchSettings),
        (AdaptiveScaler, AdaptiveSettings),
        (NoiseScaleScaler, NoiseScaleSettings),
        (RampScaler, RampSettings),
    ],
)
def test_a_scaler_by_hand_has_the_defaults_of_its_settings(scaler, settings):
    made = scaler(num_envs=32)
    assert made.settings == settings()
    assert made.settings.minibatch_rule == "size"
    assert made.plan(0.0).minibatches == round(32 * made.plan(0.0).horizon / 128)


@pytest.mark.parametrize("scaler", [FixedScaler, HorizonScaler, AdaptiveScaler, RampScaler])
def test_without_a_number_of_envs_the_number_of_minibatches_is_fixed(scaler):
    made = scaler()
    assert made.settings.minibatch_rule == "count"
    assert made.plan(0.0).minibatches == 4


@pytest.mark.parametrize("scaler", [FixedScaler, HorizonScaler, AdaptiveScaler, RampScaler])
def test_minibatches_of_a_size_need_the_number_of_envs(scaler):
    with pytest.raises(ConfigError, match="minibatch_rule size needs num_envs") as caught:
        scaler(minibatch_rule="size").plan(0.0)
    assert len(caught.value.faults) == 1
    assert scaler(minibatch_rule="size", num_envs=8).plan(0.0).minibatches >= 1


def test_a_scaler_by_hand_takes_single_settings_by_name():
    assert FixedScaler(horizon=7, epochs=3).plan(0.0) == BatchPlan(7, 3, 4)
    assert RampScaler(ramp_horizons=(10, 20)).plan(0.5).horizon == 15
    assert NoiseScaleScaler(num_envs=4, min_horizon=5).plan(0.0).horizon == 5
    assert AdaptiveScaler(RULE, max_horizon=99).settings == replace(RULE, max_horizon=99)


@pytest.mark.parametrize(
    ("scaler", "name", "hint"),
    [
        (FixedScaler, "horizn", "; did you mean horizon?"),
        (FixedScaler, "max_horizon", "; did you mean horizon?"),
        (AdaptiveScaler, "max_horizn", "; did you mean max_horizon?"),
        (AdaptiveScaler, "ramp_horizons", "; did you mean min_horizon?"),
        (NoiseScaleScaler, "batch_per_noise", "; did you mean batch_per_noise_scale?"),
        (RampScaler, "ramp_horizon", "; did you mean ramp_horizons?"),
        (FixedScaler, "zzzz", ""),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(scaler, name, hint):
    with pytest.raises(ConfigError) as caught:
        scaler(num_envs=8, **{name: 3})
    assert list(caught.value.faults) == [f"unknown option {name}{hint}"]


def test_settings_of_a_scaler_by_hand_are_checked():
    with pytest.raises(ConfigError, match="min_horizon must be at most max_horizon, got 65 and 64"):
        AdaptiveScaler(min_horizon=65)
    with pytest.raises(ConfigError, match="ramp_horizons must hold at least one horizon"):
        RampScaler(ramp_horizons=())


class Doubling(HorizonScaler):
    """A scaler as a user would write it: twice as long after each calm reading."""

    def __init__(self, settings=None, *, num_envs=None, **fields):
        super().__init__(settings, num_envs=num_envs, **fields)
        self.length = 4.0

    def horizon(self, progress):
        return self.length

    def adjust(self, reading):
        if reading < 0.1:
            self.length *= 2

    def state_dict(self):
        return {"length": self.length}

    def load_state_dict(self, state):
        self.length = state["length"]


def test_a_scaler_of_ones_own_says_a_horizon_and_the_rest_follows():
    scaler = Doubling(epochs=3, epoch_rule="scale", horizon=4, minibatch_size=16, num_envs=8)
    assert scaler.plan(0.0) == BatchPlan(4, 3, 2)
    scaler.adjust(0.5)
    assert scaler.plan(0.0) == BatchPlan(4, 3, 2)
    scaler.adjust(0.05)
    assert scaler.plan(0.0) == BatchPlan(8, 6, 4)
    restored = Doubling(num_envs=8)
    restored.load_state_dict(json.loads(json.dumps(scaler.state_dict())))
    assert restored.plan(0.0).horizon == 8
