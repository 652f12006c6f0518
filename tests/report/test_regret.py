"""Regret: its definition worked out by hand, its intervals and its test by going through every case, and the front."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swell.report.regret import chance_of_spread, regret, regrets, undominated

FIXED = ("fixed:8", "fixed:32", "fixed:128")
# Two envs with opposite best horizons, and one where horizons do not matter.
RUNS = {
    "short": {
        **{"fixed:8": [98, 100, 102, 104], "fixed:32": [59, 60, 61, 64]},
        **{"fixed:128": [0, 2, 1, 1], "moving": [81] * 4},
    },
    "long": {
        **{"fixed:8": [0, 1, 2, 1], "fixed:32": [7, 8, 9, 8]},
        **{"fixed:128": [10, 11, 12, 11], "moving": [11, 12, 11, 14]},
    },
    "flat": {
        **{"fixed:8": [5, 7, 6, 2], "fixed:32": [6, 5, 7, 3]},
        **{"fixed:128": [4, 6, 8, 1], "moving": [0, 0, 0, 0]},
    },
}


def by_hand(runs_of, variant):
    """On one env, from its definition."""
    means = {name: sum(runs) / len(runs) for name, runs in runs_of.items()}
    best, worst = max(means[name] for name in FIXED), min(means[name] for name in FIXED)
    return (best - means[variant]) / (best - worst)


def every_resample(runs_of):
    """All ways to draw as many runs again, each as likely as another."""
    draws = [[(name, chosen) for chosen in itertools.product(runs, repeat=len(runs))] for name, runs in runs_of.items()]
    return [dict(choice) for choice in itertools.product(*draws)]


def test_regret_is_0_at_the_best_fixed_horizon_1_at_the_worst_and_negative_beyond():
    fixed = [30.0, 10.0, 20.0]
    assert [float(regret(score, fixed)) for score in (30, 10, 25, 40, 5)] == [0.0, 1.0, 0.25, -0.5, 1.25]
    assert math.isnan(regret(3.0, [7.0, 7.0]))
    np.testing.assert_allclose(regret([1.0, 3.0], [[1.0, 2.0], [5.0, 1.0]]), [1.0, 0.5])


def test_the_regret_of_every_variant_is_the_definition():
    found = regrets(RUNS, FIXED)
    for env, runs_of in RUNS.items():
        for variant in runs_of:
            assert found.of(variant, env).value == pytest.approx(by_hand(runs_of, variant))
    assert found.yardsticks["short"].best == "fixed:8" and found.yardsticks["long"].best == "fixed:128"
    assert (found.yardsticks["short"].best_score, found.yardsticks["short"].worst_score) == (101, 1)


def test_mean_and_largest_are_over_the_envs_whose_fixed_horizons_differ_by_more_than_chance():
    found = regrets(RUNS, FIXED)
    assert found.telling() == ["long", "short"]
    of_moving = {env: by_hand(RUNS[env], "moving") for env in RUNS}
    assert of_moving["flat"] > 3  # the spread is noise, and so is what it divides
    assert found.mean("moving").value == pytest.approx((of_moving["long"] + of_moving["short"]) / 2)
    assert found.largest("moving").value == pytest.approx(of_moving["short"])
    assert found.mean("moving", list(RUNS)).value == pytest.approx(np.mean(list(of_moving.values())))
    assert found.largest("moving", list(RUNS)).value == pytest.approx(of_moving["flat"])
    assert (
        found.mean("nobody") is None
        and found.largest("nobody") is None
        and found.difference("moving", "nobody") is None
    )


def test_a_fixed_horizon_has_a_regret_and_the_middle_one_is_the_rival_to_beat():
    found = regrets(RUNS, FIXED)
    means = {name: found.mean(name).value for name in FIXED}
    assert means["fixed:8"] == pytest.approx(0.5) and means["fixed:128"] == pytest.approx(0.5)
    assert min(means, key=means.get) == "fixed:32"
    against = found.difference("moving", "fixed:32")
    assert against.value == pytest.approx(found.mean("moving").value - means["fixed:32"])
    assert against.low <= against.value <= against.high < 0


def test_intervals_are_quantiles_over_every_resample():
    runs_of = {"fixed:8": [9.0, 4.0], "fixed:32": [3.0, 8.0], "fixed:128": [1.0, 2.0], "moving": [5.0, 7.0]}
    exact = np.array([by_hand(drawn, "moving") for drawn in every_resample(runs_of)])
    found = regrets({"env": runs_of}, FIXED, resamples=20_000)
    draws = found.draws["moving"]["env"][1:]
    assert draws.mean() == pytest.approx(exact.mean(), abs=5 * exact.std() / math.sqrt(20_000))
    interval = found.of("moving", "env")
    assert np.mean(exact < interval.low) <= 0.03 and np.mean(exact > interval.high) <= 0.03
    assert np.mean(exact <= interval.low) >= 0.02 and np.mean(exact >= interval.high) >= 0.02


def test_the_luck_of_the_best_is_what_resampling_adds_to_it():
    runs_of = {"fixed:8": [9.0, 4.0], "fixed:32": [3.0, 8.0], "fixed:128": [1.0, 2.0]}
    best = [max(sum(drawn[name]) / 2 for name in FIXED) for drawn in every_resample(runs_of)]
    expected = (np.mean(best) - 6.5) / (6.5 - 1.5)
    noise = np.std(best) / 5.0 / math.sqrt(20_000)
    found = regrets({"env": runs_of}, FIXED, resamples=20_000)
    assert found.yardsticks["env"].luck == pytest.approx(expected, abs=5 * noise)
    assert expected > 0.1 and regrets(RUNS, FIXED).yardsticks["short"].luck < 0.001


def test_the_chance_of_a_spread_is_its_share_of_all_ways_to_shuffle_the_runs():
    groups = [[1.0, 5.0], [4.0, 8.0], [2.0, 9.0]]
    pooled = [*itertools.chain(*groups)]

    def spread(runs):
        means = [(runs[at] + runs[at + 1]) / 2 for at in (0, 2, 4)]
        return max(means) - min(means)

    exact = np.mean([spread(order) >= spread(pooled) for order in itertools.permutations(pooled)])
    found = chance_of_spread(groups, np.random.default_rng(0), shuffles=20_000)
    assert 0.1 < exact < 0.9
    assert found == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / 20_000))


def test_too_few_runs_tell_nothing_however_far_apart_they_are():
    assert chance_of_spread([[0.0], [1.0], [100.0]], np.random.default_rng(0)) == 1.0
    assert not regrets({"env": {"fixed:8": [0, 1, 2], "fixed:32": [97, 98, 99]}}, FIXED).yardsticks["env"].tells
    assert regrets({"env": {"fixed:8": [0, 1, 2, 3], "fixed:32": [97, 98, 99, 96]}}, FIXED).yardsticks["env"].tells


def test_equal_fixed_horizons_seldom_tell_although_the_best_and_the_worst_are_picked():
    generator = np.random.default_rng(1)
    chances = [chance_of_spread(generator.normal(size=(5, 4)), generator, shuffles=200) for _ in range(300)]
    assert np.mean(np.array(chances) <= 0.05) == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 300))


def test_fixed_horizons_with_one_score_say_nothing():
    found = regrets({"env": {"fixed:8": [500] * 5, "fixed:32": [500] * 5, "moving": [400] * 5}}, FIXED)
    assert found.yardsticks["env"].chance == 1.0 and found.telling() == []
    assert found.mean("moving") is None and found.mean("moving", ["env"]) is None
    assert math.isnan(found.of("moving", "env").value)


def test_an_env_with_one_fixed_horizon_has_no_yardstick():
    assert regrets({"env": {"fixed:8": [1, 2], "moving": [3, 4]}}, FIXED).yardsticks == {}


@given(st.permutations(range(4)))
@settings(max_examples=10, deadline=None)
def test_the_order_of_runs_and_variants_decides_nothing(order):
    shuffled = {
        env: {name: [RUNS[env][name][at] for at in order] for name in reversed(RUNS[env])} for env in reversed(RUNS)
    }
    one, other = regrets(RUNS, FIXED, resamples=100), regrets(shuffled, FIXED[::-1], resamples=100)
    assert one.mean("moving") == other.mean("moving") and one.largest("fixed:8") == other.largest("fixed:8")
    assert one.yardsticks == other.yardsticks


POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8)


@given(POINTS)
@settings(max_examples=60, deadline=None)
def test_the_front_holds_what_nothing_as_cheap_surpasses(points):
    costs, scores = zip(*points, strict=True)
    front = undominated(costs, scores)
    for cost, score in points:
        reached = max(s for c, s in points if c <= cost)
        assert max(scores[at] for at in front if costs[at] <= cost) == reached >= score
    for earlier, later in itertools.pairwise(front):
        assert costs[earlier] < costs[later] and scores[earlier] < scores[later]
