"""Scalers: bounds, monotonicity, both ends reachable, the release's stall reproduced."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.batch.noise_scale import LARGEST_NOISE_SCALE
from swell.batch.scalers import (
    AdaptiveRule,
    AdaptiveScaler,
    Effort,
    FixedScaler,
    NoiseScaleRule,
    NoiseScaleScaler,
    RampScaler,
    nonstationarity,
    steps_of,
)

pytestmark = pytest.mark.portable

EFFORT = Effort(
    num_envs=128,
    epochs=2,
    epoch_rule="constant",
    reference_horizon=32,
    minibatch_rule="count",
    minibatches=4,
    minibatch_size=512,
)
RULE = AdaptiveRule(
    min_horizon=16,
    max_horizon=64,
    calm_reading=0.05,
    volatile_reading=0.95,
    interpolation="log",
    smoothing=0.1,
    history=1,
    warmup_readings=0,
    rounding="nearest",
)
RELEASE = replace(RULE, history=20, warmup_readings=10, rounding="truncate")
NOISE_RULE = NoiseScaleRule(min_horizon=16, max_horizon=64, batch_per_noise_scale=1.0, smoothing=1.0)
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


def after(rule, readings):
    scaler = AdaptiveScaler(EFFORT, rule)
    for reading in readings:
        scaler.adjust(reading)
    return horizon(scaler)


@given(RULES, st.lists(READINGS, max_size=40))
def test_the_horizon_stays_within_its_bounds(rule, readings):
    assert rule.min_horizon <= after(rule, readings) <= rule.max_horizon


@given(RULES, READINGS, READINGS)
def test_a_more_volatile_policy_never_gets_a_longer_target(rule, one, other):
    calm, volatile = sorted((one, other))
    assert rule.target(volatile) <= rule.target(calm)


@given(RULES)
def test_lasting_calm_reaches_the_longest_horizon_and_lasting_change_the_shortest(rule):
    spread = rule.max_horizon - rule.min_horizon
    enough = rule.history + math.ceil(math.log(0.4 / (spread + 1)) / math.log(1 - min(rule.smoothing, 0.99))) + 1
    scaler = AdaptiveScaler(EFFORT, rule)
    for _ in range(enough):
        scaler.adjust(0.0)
    assert horizon(scaler) == rule.max_horizon
    for _ in range(enough + rule.history):
        scaler.adjust(1.0)
    assert horizon(scaler) == rule.min_horizon


@given(RULES, st.lists(READINGS, min_size=1, max_size=30))
def test_one_reading_moves_the_horizon_by_at_most_the_smoothing(rule, readings):
    scaler = AdaptiveScaler(EFFORT, rule)
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
    assert (rule.target(1.0), rule.target(0.3)) == (64.0, 16.0)


@given(READINGS, st.sampled_from(["log", "linear"]))
def test_swapping_the_thresholds_turns_the_rule_around(reading, interpolation):
    one = nonstationarity(reading, 0.05, 0.95, interpolation)
    assert nonstationarity(reading, 0.95, 0.05, interpolation) == pytest.approx(1.0 - one)


@pytest.mark.parametrize(
    ("reading", "target_64", "target_128"), [(0.1, 52.70, 101.63), (0.2, 41.40, 75.27), (0.5, 26.47, 40.42)]
)
def test_log_interpolation_gives_the_published_targets(reading, target_64, target_128):
    assert RULE.target(reading) == pytest.approx(target_64, abs=0.01)
    assert replace(RULE, max_horizon=128).target(reading) == pytest.approx(target_128, abs=0.01)


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


@pytest.mark.parametrize("scaler", [AdaptiveScaler(EFFORT, RULE), NoiseScaleScaler(EFFORT, NOISE_RULE)])
@pytest.mark.parametrize("reading", [math.nan, math.inf, -0.1])
def test_a_reading_that_is_no_amount_is_refused(scaler, reading):
    with pytest.raises(ValueError, match="reading"):
        scaler.adjust(reading)


def test_a_restored_scaler_goes_on_exactly():
    readings = [0.9, 0.4, 0.2, 0.1, 0.3]
    rule = replace(RULE, history=3, warmup_readings=2)
    scaler = AdaptiveScaler(EFFORT, rule)
    for reading in readings:
        scaler.adjust(reading)
    restored = AdaptiveScaler(EFFORT, rule)
    restored.load_state_dict(scaler.state_dict())
    for twin in (scaler, restored):
        twin.adjust(0.05)
    assert restored.state_dict() == scaler.state_dict()


@given(st.floats(0, 1e5), st.integers(1, 8), st.floats(0.1, 4))
def test_a_fixed_number_of_minibatches_makes_each_as_large_as_the_noise_scale(noise_scale, minibatches, ratio):
    scaler = NoiseScaleScaler(
        replace(EFFORT, minibatches=minibatches), replace(NOISE_RULE, batch_per_noise_scale=ratio)
    )
    scaler.adjust(noise_scale)
    if 16 < horizon(scaler) < 64:
        one_step = 128 / minibatches  # the minibatch is whole env steps, so this is how near it can come
        assert 128 * horizon(scaler) / minibatches == pytest.approx(ratio * noise_scale, abs=0.51 * one_step)


def test_minibatches_of_a_fixed_size_make_the_rollout_as_large_as_the_noise_scale():
    scaler = NoiseScaleScaler(replace(EFFORT, minibatch_rule="size"), NOISE_RULE)
    scaler.adjust(128 * 40.0)
    assert horizon(scaler) == 40


def test_the_noise_scale_stays_within_the_bounds_and_an_infinite_one_asks_for_the_largest_batch():
    scaler = NoiseScaleScaler(EFFORT, NOISE_RULE)
    assert horizon(scaler) == 16
    for reading, expected in [(LARGEST_NOISE_SCALE, 64), (0.0, 16), (1e300, 64)]:
        scaler.adjust(reading)
        assert horizon(scaler) == expected


def test_an_infinite_noise_scale_moves_a_smoothed_horizon_no_faster_than_the_largest_batch_would():
    smooth = replace(NOISE_RULE, smoothing=0.25)
    infinite, large = NoiseScaleScaler(EFFORT, smooth), NoiseScaleScaler(EFFORT, smooth)
    infinite.adjust(LARGEST_NOISE_SCALE)
    large.adjust(64 * 128 / 4)
    assert infinite.state_dict() == large.state_dict() == {"horizon": 28.0}
    for _ in range(20):
        infinite.adjust(LARGEST_NOISE_SCALE)
    assert horizon(infinite) == 64


def test_a_restored_noise_scale_scaler_goes_on_exactly():
    rule = replace(NOISE_RULE, smoothing=0.3)
    scaler, restored = NoiseScaleScaler(EFFORT, rule), NoiseScaleScaler(EFFORT, rule)
    scaler.adjust(1000.0)
    restored.load_state_dict(scaler.state_dict())
    for twin in (scaler, restored):
        twin.adjust(1500.0)
    assert restored.state_dict() == scaler.state_dict()


def test_a_fixed_scaler_ignores_every_reading():
    scaler = FixedScaler(EFFORT, 32)
    scaler.adjust(0.0)
    assert horizon(scaler) == 32


@pytest.mark.parametrize(("length", "epochs"), [(16, 2), (32, 2), (47, 2), (48, 3), (64, 4), (119, 7), (128, 8)])
def test_the_scale_rule_makes_the_epochs_of_the_public_release(length, epochs):
    assert replace(EFFORT, epoch_rule="scale").plan(length).epochs == epochs


@pytest.mark.parametrize(("length", "epochs"), [(1024, 5), (2048, 10), (8192, 40), (100, 1)])
def test_the_proportional_rule_makes_those_of_its_ppo(length, epochs):
    effort = replace(EFFORT, epochs=10, reference_horizon=2048, epoch_rule="proportional")
    assert effort.plan(length).epochs == epochs
    assert EFFORT.plan(length).epochs == 2


@given(st.integers(4, 256))
def test_the_size_rule_keeps_gradient_steps_per_sample(length):
    plan = replace(EFFORT, minibatch_rule="size").plan(length)
    assert 128 * length / plan.minibatches == pytest.approx(512, rel=0.5)
    assert replace(EFFORT, minibatch_rule="size").plan(4 * length).minibatches == pytest.approx(
        4 * plan.minibatches, abs=2
    )
    assert EFFORT.plan(length).minibatches == 4


def test_a_ramp_interpolates_between_its_points():
    ramp = RampScaler(EFFORT, [(0.0, 16.0), (0.5, 64.0), (1.0, 32.0)])
    assert [ramp.plan(progress).horizon for progress in (0.0, 0.25, 0.5, 0.75, 1.0)] == [16, 40, 64, 48, 32]


def test_a_replayed_trajectory_holds_each_horizon_until_the_next():
    ramp = RampScaler(EFFORT, steps_of([(0.0, 16.0), (0.3, 20.0), (0.6, 18.0)]))
    assert [ramp.plan(progress).horizon for progress in (0.0, 0.29, 0.3, 0.59, 0.6, 1.0)] == [16, 16, 20, 20, 18, 18]


MULTIPLES = st.sampled_from([1, 2, 4, 8, 16])


@given(MULTIPLES, st.lists(READINGS, max_size=40))
def test_an_adaptive_horizon_is_planned_in_multiples_and_kept_to_a_fraction(multiple, readings):
    plain, coarse = AdaptiveScaler(EFFORT, RULE), AdaptiveScaler(replace(EFFORT, horizon_multiple=multiple), RULE)
    for reading in readings:
        for scaler in (plain, coarse):
            scaler.adjust(reading)
        assert coarse.state_dict() == plain.state_dict()
        assert horizon(coarse) % multiple == 0
        assert RULE.min_horizon <= horizon(coarse) <= RULE.max_horizon
        assert abs(horizon(coarse) - plain.state_dict()["horizon"]) <= multiple / 2


@given(MULTIPLES, st.floats(0, 1e5))
def test_a_horizon_by_noise_scale_is_planned_in_multiples(multiple, noise_scale):
    scaler = NoiseScaleScaler(replace(EFFORT, horizon_multiple=multiple), NOISE_RULE)
    scaler.adjust(noise_scale)
    assert horizon(scaler) % multiple == 0
    assert NOISE_RULE.min_horizon <= horizon(scaler) <= NOISE_RULE.max_horizon
    assert abs(horizon(scaler) - scaler.state_dict()["horizon"]) <= multiple / 2


def test_a_ramp_is_climbed_in_multiples():
    ramp = RampScaler(replace(EFFORT, horizon_multiple=16), [(0.0, 16.0), (1.0, 64.0)])
    assert [ramp.plan(tenth / 10).horizon for tenth in range(11)] == [16, 16, 32, 32, 32, 48, 48, 48, 48, 64, 64]


def test_a_replayed_horizon_shorter_than_a_multiple_becomes_one():
    assert RampScaler(replace(EFFORT, horizon_multiple=16), [(0.0, 3.0)]).plan(0.0).horizon == 16


def test_the_number_of_minibatches_follows_the_multiple():
    by_size = replace(EFFORT, minibatch_rule="size", horizon_multiple=16)
    assert RampScaler(by_size, [(0.0, 37.0)]).plan(0.0).minibatches == 32 * 128 // 512
