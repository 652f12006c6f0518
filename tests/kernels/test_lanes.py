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
from swell.kernels import halves, objectives, updates
from swell.kernels.halves import make_meeting
from swell.kernels.lanes import APART, CLAIMED, DONE, OVER, POSTED, claims, make_lanes
from swell.learning import fused
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

PLAN = BatchPlan(160, 3, 2)
"""640 rows but for resets: minibatches large enough for three lanes."""
FIELDS = {
    "ppo": {"normalize_observations": True, "architecture": "shared"},
    "ppo in halves": {"normalize_observations": True, "advantage_norm": "minibatch"},
    "pqn": {},
}


def learner_and_rollout(kind, threads):
    envs = ScriptedEnvs(4)
    learner = learner_for(envs, kind.split()[0], path="compiled", threads=threads, **FIELDS[kind])
    return learner, cloned(rollout_of(learner, envs, PLAN.horizon))


def updated(kind, threads, times=2):
    learner, rollout = learner_and_rollout(kind, threads)
    metrics = [learner.update(rollout, PLAN, 0.0) for _ in range(times)][-1]
    return weights(learner), metrics


@pytest.fixture
def nobody_comes(monkeypatch):
    monkeypatch.setattr(fused.Helper, "call", lambda self, *arguments: None)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("kind", list(FIELDS))
def test_the_bits_are_the_same_whoever_does_the_work(kind, threads, monkeypatch):
    helped, metrics = updated(kind, threads)
    monkeypatch.setattr(fused.Helper, "call", lambda self, *arguments: None)
    alone, expected = updated(kind, threads)
    assert torch.equal(helped, alone) and metrics == expected


@pytest.mark.parametrize("kind", list(FIELDS))
def test_lanes_change_nothing_but_rounding(kind, nobody_comes):
    envs = ScriptedEnvs(4)
    learner, rollout = learner_and_rollout(kind, 3)
    twin = exact_twin(learner, envs, kind.split()[0], **FIELDS[kind])
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


@pytest.mark.parametrize(("kind", "maker"), [("ppo", "make_lanes"), ("ppo in halves", "make_meeting")])
def test_the_desk_is_closed_when_an_update_ends(kind, maker, monkeypatch):
    desks = []
    original = getattr(fused, maker)
    monkeypatch.setattr(fused, maker, lambda *given: desks.append(original(*given)) or desks[-1])
    updated(kind, 2)
    assert len(desks) == 2 and all(lanes.desk[POSTED] == OVER for lanes in desks)


@pytest.mark.parametrize("kind", list(FIELDS))
def test_a_number_that_is_not_finite_stops_all_lanes(kind):
    learner, rollout = learner_and_rollout(kind, 2)
    rollout.rewards[-1, -1] = float("nan")
    before = weights(learner).clone()
    with pytest.raises(DivergedError):
        learner.update(rollout, BatchPlan(PLAN.horizon, 1, 1), 0.0)
    assert torch.equal(weights(learner), before)


def test_small_minibatches_stay_in_one_lane():
    learner, _ = learner_and_rollout("pqn", 4)
    rows = fused.FEWEST_ROWS_OF_A_LANE
    assert [learner._crew.lanes_for(count) for count in (1, 2 * rows - 1, 2 * rows, 100 * rows)] == [1, 1, 2, 4]


def test_halves_have_the_same_bits_on_any_number_of_threads():
    one, metrics = updated("ppo in halves", 1)
    two, others = updated("ppo in halves", 2)
    assert torch.equal(one, two) and metrics == others


def test_a_helper_goes_along_the_chain_of_the_values_as_far_as_the_policy_has_come():
    """The leader has done the first task itself, and has its own gradient of the first step but not of the second."""
    called = []
    learner, rollout = learner_and_rollout("ppo in halves", 2)
    original, fused.Helper.call = fused.Helper.call, lambda self, *arguments: called.append(arguments)
    try:
        learner.update(rollout, PLAN, 0.0)
    finally:
        fused.Helper.call = original
    function, value, room, optimizer, batch, objective, used, orders, ends = called[0]
    data = (optimizer, batch, objective, meeting := make_meeting(used.gradient.size, 6, np.array([0, 1])), orders, ends)
    before = value.network.weights.copy()
    assert claims(meeting.desk, halves.CHAIN, 1)
    halves.do_task(value, room, *data, 1)
    meeting.desk[[POSTED, halves.MET, APART + DONE]] = 2, 1, 1
    helper = threading.Thread(target=function, args=(value, room, *data))
    helper.start()
    helper.join(timeout=60)  # the policy's gradient of the second step does not come, so it goes home
    assert not helper.is_alive()
    assert meeting.desk[APART + CLAIMED] == meeting.desk[APART + DONE] == 3  # Adam of step 1, gradient of step 2
    moved = np.flatnonzero(value.network.weights != before)
    own = np.concatenate([np.arange(*place) for place in value.places])
    assert len(moved) > 0 and np.isin(moved, own).all()
    assert meeting.steps[1, halves.VALUE, 1] > 0.0 and meeting.steps[1, halves.POLICY, 1] == 0.0


def test_the_places_of_both_halves_are_all_weights_once():
    learner, _ = learner_and_rollout("ppo in halves", 1)
    model = learner.kernel
    places = np.concatenate([fused.half_of(model, part).places for part in (model.policy_part, model.value_part)])
    covered = np.concatenate([np.arange(*place) for place in places])
    assert sorted(covered.tolist()) == list(range(model.flat.numel()))
