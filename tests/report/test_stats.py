"""Statistics of many runs: rliable's definitions worked out by hand, bootstrap intervals, curves of unequal length."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swell.report.stats import (
    align,
    bootstrap,
    bootstrap_band,
    bootstrap_difference,
    bootstrap_mean,
    common_grid,
    curve_band,
    interquartile_mean,
    mean_score,
    median_score,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    resampled,
    spearman,
)

# Sorted and pooled: 0.0 0.2 0.4 0.5 | 0.6 0.8 1.0 1.5 | 2.0 4.0, so int(10 / 4) = 2 go at either end.
RAGGED = {
    "ALE/Pong-v5": np.array([0.2, 4.0, 0.6]),
    "ALE/Qbert-v5": np.array([1.0, 0.0, 0.5, 0.8, 2.0]),
    "ALE/Hero-v5": np.array([1.5, 0.4]),
}
AGGREGATES = [interquartile_mean, mean_score, median_score, optimality_gap]
PROFILE = partial(performance_profile, thresholds=[-1.0, 0.5, 9.0])
RUNS = st.lists(st.floats(-100, 100), min_size=1, max_size=6)
SCORES = st.dictionaries(st.sampled_from("abcde"), RUNS, min_size=1)
few = settings(max_examples=40, deadline=None)


def test_the_interquartile_mean_cuts_a_quarter_of_the_pooled_runs_off_either_end():
    assert interquartile_mean(RAGGED) == pytest.approx((0.4 + 0.5 + 0.6 + 0.8 + 1.0 + 1.5) / 6)
    assert interquartile_mean({"a": [1.0, 2.0, 9.0]}) == pytest.approx(4.0)  # int(3 / 4) = 0: nothing to cut
    assert interquartile_mean({"a": [9.0, 1.0], "b": [2.0, -50.0]}) == pytest.approx(1.5)


def test_mean_and_median_are_over_the_means_of_envs():
    assert mean_score(RAGGED) == pytest.approx((1.6 + 0.86 + 0.95) / 3)
    assert median_score(RAGGED) == pytest.approx(0.95)
    assert median_score({"a": [0.0, 2.0], "b": [7.0]}) == pytest.approx(4.0)


def test_the_optimality_gap_gives_no_credit_beyond_gamma():
    # 0.2 + 1 + 0.6 | 1 + 0 + 0.5 + 0.8 + 1 | 1 + 0.4 = 6.5 over ten runs
    assert optimality_gap(RAGGED) == pytest.approx(1 - 0.65)
    assert optimality_gap(RAGGED, gamma=2.0) == pytest.approx(2 - 0.9)
    assert optimality_gap({"a": [1.0, 30.0]}) == 0.0


def test_a_profile_is_the_share_of_runs_strictly_above_each_threshold():
    assert performance_profile(RAGGED, [-1.0, 0.0, 0.8, 1.9, 4.0]).tolist() == [1.0, 0.9, 0.4, 0.2, 0.0]


def test_improvement_is_the_mann_whitney_probability_averaged_over_shared_envs():
    x = {"a": [1.0, 3.0, 5.0], "b": [2.0], "only x": [9.0]}
    y = {"a": [2.0, 3.0], "b": [2.0, 2.0], "only y": [9.0]}
    # a: 1 beats none, 3 beats 2 and ties with 3, 5 beats both: 3.5 of 6 pairs. b: two ties of two.
    assert probability_of_improvement(x, y) == pytest.approx((3.5 / 6 + 0.5) / 2)
    assert probability_of_improvement({"a": [2.0, 3.0]}, {"a": [0.0, 1.0]}) == 1.0


@given(RUNS, RUNS)
def test_the_two_probabilities_of_improvement_sum_to_one(x, y):
    there, back = probability_of_improvement({"a": x}, {"a": y}), probability_of_improvement({"a": y}, {"a": x})
    assert there + back == pytest.approx(1.0)


def improvement_on_its_mirror(scores):
    return probability_of_improvement(scores, {env: 1 - values for env, values in scores.items()})


@pytest.mark.parametrize("statistic", [*AGGREGATES, improvement_on_its_mirror, PROFILE])
def test_a_statistic_of_resamples_is_the_statistic_of_each(statistic):
    draws = resampled(RAGGED, np.random.default_rng(3), 50)
    each = [statistic({env: values[sample] for env, values in draws.items()}) for sample in range(50)]
    assert len(np.unique(each, axis=0)) > 5
    np.testing.assert_allclose(statistic(draws), each)


def test_resampling_stays_within_an_env_and_draws_with_replacement():
    draws = resampled(RAGGED, np.random.default_rng(0), 4000)
    for env, values in RAGGED.items():
        assert draws[env].shape == (4000, len(values))
        kinds, counts = np.unique(draws[env], return_counts=True)
        assert kinds.tolist() == sorted(values)
        np.testing.assert_allclose(counts / draws[env].size, 1 / len(values), atol=0.02)
        assert any(len(set(sample)) < len(values) for sample in draws[env].tolist())


@few
@given(SCORES, st.sampled_from([interquartile_mean, mean_score, median_score]), st.integers(0, 9))
def test_intervals_lie_within_the_data_and_repeat_by_seed(scores, statistic, seed):
    pooled = np.concatenate(list(scores.values()))
    interval = bootstrap(statistic, scores, resamples=50, seed=seed)
    assert pooled.min() - 1e-9 <= interval.low <= interval.high <= pooled.max() + 1e-9
    assert pooled.min() - 1e-9 <= interval.value <= pooled.max() + 1e-9
    assert bootstrap(statistic, scores, resamples=50, seed=seed) == interval


@few
@given(SCORES, st.sampled_from(AGGREGATES), st.randoms())
def test_the_order_of_runs_and_envs_does_not_matter(scores, statistic, random):
    shuffled = {env: random.sample(scores[env], len(scores[env])) for env in random.sample(list(scores), len(scores))}
    one, other = (bootstrap(statistic, group, resamples=50) for group in (scores, shuffled))
    assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high))


def test_another_seed_gives_another_interval_of_the_same_value():
    one, other = (bootstrap(interquartile_mean, RAGGED, resamples=100, seed=seed) for seed in (0, 1))
    assert one.value == other.value
    assert (one.low, one.high) != (other.low, other.high)


def test_the_bootstrap_leaves_the_global_generator_alone():
    before = np.random.get_state()[1].tolist()
    bootstrap(mean_score, RAGGED)
    assert np.random.get_state()[1].tolist() == before


def test_the_interval_of_two_equally_likely_scores_is_the_binomial_one():
    """The resampled mean of 50 zeros and 50 ones is Binomial(100, ½) / 100, whose 95 % quantiles are 0.40 and 0.60."""
    interval = bootstrap(mean_score, {"a": [0.0, 1.0] * 50}, resamples=20_000)
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.5, 0.40, 0.60), abs=0.011)
    narrow = bootstrap(mean_score, {"a": [0.0, 1.0] * 50}, resamples=20_000, confidence=0.5)
    assert (narrow.low, narrow.high) == pytest.approx((0.47, 0.53), abs=0.011)


def test_about_95_percent_of_intervals_cover_the_truth():
    generator = np.random.default_rng(11)
    groups = ({env: generator.normal(2.0, 1.0, size=10) for env in "abcd"} for _ in range(300))
    intervals = [bootstrap(mean_score, group, resamples=400) for group in groups]
    # Percentile intervals of few runs are a little short: √(9 / 10) of the width covers 93.7 %.
    assert 0.89 <= np.mean([interval.low <= 2.0 <= interval.high for interval in intervals]) <= 0.97


def test_groups_are_resampled_apart():
    """Pairing the runs would make the difference of a group and itself 0 in every resample."""
    difference = bootstrap_difference(RAGGED["ALE/Qbert-v5"], RAGGED["ALE/Qbert-v5"])
    assert difference.value == 0.0
    assert difference.low < -0.3 and difference.high > 0.3


def test_the_intervals_of_one_env_are_those_of_its_runs():
    assert bootstrap_mean([1.0, 2.0, 6.0]) == bootstrap(mean_score, {"a": [1.0, 2.0, 6.0]})
    difference = bootstrap_difference([10.0, 11.0, 12.0], [1.0, 3.0])
    assert difference.value == pytest.approx(9.0)
    assert 10 - 3 <= difference.low < 9 < difference.high <= 12 - 1


def test_a_profile_gets_a_band_around_itself():
    value, low, high = bootstrap_band(PROFILE, RAGGED)
    assert value.tolist() == [1.0, 0.6, 0.0]
    assert low.tolist()[::2] == high.tolist()[::2] == [1.0, 0.0]
    assert low[1] < 0.6 < high[1]


@pytest.mark.parametrize("statistic", AGGREGATES)
@pytest.mark.parametrize("scores", [{"a": [0.7]}, {"a": [0.7], "b": [0.7]}, {"a": [0.7] * 9, "b": [0.7]}])
def test_without_spread_there_is_no_interval(statistic, scores):
    value = 0.3 if statistic is optimality_gap else 0.7
    interval = bootstrap(statistic, scores)
    assert (interval.value, interval.low, interval.high) == pytest.approx((value, value, value))


@pytest.mark.parametrize("statistic", [*AGGREGATES, PROFILE])
def test_bad_scores_are_refused_by_name(statistic):
    with pytest.raises(ValueError, match="no scores: give at least one env"):
        statistic({})
    with pytest.raises(ValueError, match="ALE/Hero-v5 must have finite values only, got nan"):
        statistic(RAGGED | {"ALE/Hero-v5": [1.0, np.nan]})
    with pytest.raises(ValueError, match="ALE/Hero-v5 must have at least one value"):
        statistic(RAGGED | {"ALE/Hero-v5": []})


def test_what_cannot_be_resampled_is_refused():
    with pytest.raises(ValueError, match="a must have one score per run"):
        bootstrap(mean_score, {"a": [[1.0, 2.0]]})
    with pytest.raises(ValueError, match="confidence must be between 0 and 1, got 95"):
        bootstrap_mean([1.0, 2.0], confidence=95)
    with pytest.raises(ValueError, match="no env in common"):
        probability_of_improvement({"a": [1.0]}, {"b": [1.0]})
    with pytest.raises(ValueError, match="b must have finite"):
        probability_of_improvement({"b": [1.0]}, {"b": [np.inf]})


SHORT, LONG = ([0.0, 10.0], [0.0, 1.0]), ([5.0, 15.0, 20.0], [3.0, 5.0, 5.0])


def test_aligning_interpolates_and_never_extrapolates():
    aligned = align([SHORT, LONG], [-1.0, 0.0, 5.0, 7.5, 10.0, 20.0, 21.0])
    nan = np.nan
    np.testing.assert_allclose(aligned[0], [nan, 0.0, 0.5, 0.75, 1.0, nan, nan])
    np.testing.assert_allclose(aligned[1], [nan, nan, 3.0, 3.5, 4.0, 5.0, nan])


def test_a_repeated_x_is_a_step():
    np.testing.assert_array_equal(align([([0.0, 1.0, 1.0, 2.0], [0.0, 0.0, 4.0, 4.0])], [0.5, 1.0, 1.5]), [[0, 4, 4]])


def test_the_common_grid_spans_all_runs():
    np.testing.assert_allclose(common_grid([SHORT, LONG], points=5), [0.0, 5.0, 10.0, 15.0, 20.0])
    assert len(common_grid([SHORT])) == 200


def test_a_band_is_over_the_runs_that_reach_a_point():
    mean, low, high = curve_band([SHORT, LONG], [0.0, 5.0, 10.0, 15.0, 20.0, 99.0])
    np.testing.assert_allclose(mean, [0.0, 1.75, 2.5, 5.0, 5.0, np.nan])
    np.testing.assert_allclose(low, [0.0, 0.5, 1.0, 5.0, 5.0, np.nan])  # of two runs, 1 in 4 resamples is one run twice
    np.testing.assert_allclose(high, [0.0, 3.0, 4.0, 5.0, 5.0, np.nan])


def test_the_band_of_one_run_is_the_run():
    for line in curve_band([LONG], LONG[0]):
        assert line.tolist() == LONG[1]


def test_a_band_is_the_bootstrap_of_the_mean_at_each_point():
    runs = np.random.default_rng(5).normal(size=(8, 3))
    curves = [(np.arange(3.0), run) for run in runs]
    mean, low, high = curve_band(curves, [0.0, 1.0, 2.0], resamples=20_000)
    for point in range(3):
        interval = bootstrap_mean(runs[:, point], resamples=20_000, seed=1)
        expected = (interval.value, interval.low, interval.high)
        assert (mean[point], low[point], high[point]) == pytest.approx(expected, abs=0.03)
    np.testing.assert_allclose(curve_band(curves[::-1], [0, 1, 2], resamples=20_000), (mean, low, high))


@pytest.mark.parametrize(
    ("curve", "complaint"),
    [
        (([0.0, 2.0, 1.0], [0.0, 0.0, 0.0]), "x of run 1 must never fall"),
        (([0.0, 1.0], [0.0]), "run 1 must have as many x as y, got 2 and 1"),
        (([0.0, 1.0], [0.0, np.nan]), "run 1, y must have finite"),
        (([], []), "run 1, x must have at least one value"),
    ],
)
def test_a_broken_curve_is_refused_by_number(curve, complaint):
    with pytest.raises(ValueError, match=complaint):
        align([SHORT, curve], [0.0])
    with pytest.raises(ValueError, match="no curves"):
        common_grid([])


def test_spearman_correlates_ranks():
    # Ranks 1 2 3 4 5 against 2 1 4 3 5: 1 − 6 Σd² / (n (n² − 1)) = 1 − 24 / 120
    assert spearman([1, 10, 100, 1000, 1e9], [0.2, 0.1, 0.4, 0.3, 7.0]) == pytest.approx(0.8)
    # Ties: ranks 1.5 1.5 3 4 against 1 2 3 4: sum of products 4.5, of squares 4.5 and 5
    assert spearman([4, 4, 9, 12], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(4.5 * 5.0))


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=20, unique=True))
def test_only_the_order_counts_for_spearman(values):
    cubes = [value**3 for value in values]
    assert spearman(values, cubes) == pytest.approx(1.0)
    assert spearman(values, [-cube for cube in cubes]) == pytest.approx(-1.0)


def test_spearman_is_unknown_without_variation():
    assert np.isnan(spearman([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))
    assert np.isnan(spearman([1.0, 2.0, 3.0], [5.0, 5.0, 5.0]))
    assert np.isnan(spearman([1.0, 2.0], [1.0, 2.0]))
    with pytest.raises(ValueError, match="same length, got 3 and 2"):
        spearman([1.0, 2.0, 3.0], [1.0, 2.0])
