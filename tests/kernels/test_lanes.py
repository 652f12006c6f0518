"""Threads at one gradient step: what comes out does not hang on who did the work, or on whether anybody came."""

import threading

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from exact_copies import assert_near, cloned, exact_twin, update_exactly
from policy_learners import learner_for, rollout_of, weights
from scripted_envs import ScriptedEnvs

from swell.errors import DivergedError
from swell.kernels import objectives, updates
from swell.kernels.lanes import APART, CLAIMED, DONE, OVER, POSTED, claims, make_lanes
from swell.learning import fused
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

PLAN = BatchPlan(160, 3, 2)
"""640 rows but for resets: minibatches large enough for three lanes."""
FIELDS = {"ppo": {"normalize_observations": True}, "pqn": {}}


def learner_and_rollout(algorithm, threads):
    envs = ScriptedEnvs(4)
    learner = learner_for(envs, algorithm, path="compiled", threads=threads, **FIELDS[algorithm])
    return learner, cloned(rollout_of(learner, envs, PLAN.horizon))


def updated(algorithm, threads, times=2):
    learner, rollout = learner_and_rollout(algorithm, threads)
    metrics = [learner.update(rollout, PLAN, 0.0) for _ in range(times)][-1]
    return weights(learner), metrics


@pytest.fixture
def nobody_comes(monkeypatch):
    monkeypatch.setattr(fused.Helper, "call", lambda self, *arguments: None)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("algorithm", list(FIELDS))
def test_the_bits_are_the_same_whoever_does_the_work(algorithm, threads, monkeypatch):
    helped, metrics = updated(algorithm, threads)
    monkeypatch.setattr(fused.Helper, "call", lambda self, *arguments: None)
    alone, expected = updated(algorithm, threads)
    assert torch.equal(helped, alone) and metrics == expected


@pytest.mark.parametrize("algorithm", list(FIELDS))
def test_lanes_change_nothing_but_rounding(algorithm, nobody_comes):
    envs = ScriptedEnvs(4)
    learner, rollout = learner_and_rollout(algorithm, 3)
    twin = exact_twin(learner, envs, algorithm, **FIELDS[algorithm])
    before = weights(learner).double()
    learner.update(rollout, PLAN, 0.0)
    update_exactly(twin, rollout, PLAN)
    assert (weights(twin) - before).abs().max() > 1e-3
    assert_near(weights(learner).double() - before, weights(twin) - before, 1e-4)


def test_a_helper_does_its_lane_and_says_so():
    """Seen from the leader: a posted step is claimed and done by a call of the helper's kernel."""
    called = []
    learner, rollout = learner_and_rollout("pqn", 2)
    original, fused.Helper.call = fused.Helper.call, lambda self, *arguments: called.append(arguments)
    try:
        learner.update(rollout, PLAN, 0.0)
    finally:
        fused.Helper.call = original
    function, network, room, head, rows, coefficient, _, orders, ends, lane = called[0]
    lanes = make_lanes(2, network.weights.size, objectives.SUMS, np.array([0, 1]))
    lanes.gradients[:] = np.nan
    lanes.desk[POSTED] = 2  # the leader has begun the second step; it did the first by itself
    assert claims(lanes.desk, 1, 1)
    helper = threading.Thread(target=function, args=(network, room, head, rows, coefficient, lanes, orders, ends, lane))
    helper.start()
    helper.join(timeout=60)  # no third step comes, so it goes home
    assert not helper.is_alive()
    assert lanes.desk[APART + CLAIMED] == lanes.desk[APART + DONE] == 2
    assert np.isnan(lanes.gradients[0]).all()
    expected = make_lanes(2, network.weights.size, objectives.SUMS, np.array([0, 1]))
    updates.q_lane(network, room, head, rows, coefficient, expected, orders[0][ends[0] : ends[1]], 1)
    assert np.array_equal(lanes.gradients[1], expected.gradients[1]) and expected.gradients[1].any()


def test_a_lane_is_claimed_once():
    desk = np.zeros(2 * APART, np.int64)
    assert claims(desk, 1, 1)
    assert not claims(desk, 1, 1)
    assert claims(desk, 1, 2)


def test_the_desk_is_closed_when_an_update_ends(monkeypatch):
    desks = []
    original = fused.make_lanes
    monkeypatch.setattr(fused, "make_lanes", lambda *given: desks.append(original(*given)) or desks[-1])
    updated("ppo", 2)
    assert len(desks) == 2 and all(lanes.desk[POSTED] == OVER for lanes in desks)


@pytest.mark.parametrize("algorithm", list(FIELDS))
def test_a_number_that_is_not_finite_stops_all_lanes(algorithm):
    learner, rollout = learner_and_rollout(algorithm, 2)
    rollout.rewards[-1, -1] = float("nan")
    before = weights(learner).clone()
    with pytest.raises(DivergedError):
        learner.update(rollout, BatchPlan(PLAN.horizon, 1, 1), 0.0)
    assert torch.equal(weights(learner), before)


def test_small_minibatches_stay_in_one_lane():
    learner, _ = learner_and_rollout("pqn", 4)
    rows = fused.FEWEST_ROWS_OF_A_LANE
    assert [learner._crew.lanes_for(count) for count in (1, 2 * rows - 1, 2 * rows, 100 * rows)] == [1, 1, 2, 4]
