"""How far a policy moved: behavioral divergence, KL, effective sample size; when and where they are measured."""

import math
from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tolerances import rounding_of
from torch import Generator

from swell.batch.signals import (
    BEHAVIORAL_DIVERGENCE,
    Measurement,
    PolicyChange,
    behavioral_divergence,
    continuous_behavior,
    continuous_divergence,
    effective_sample_size,
    kl_divergence,
    make_aspect,
)
from swell.learning.distributions import ActionKind
from swell.types import Rollout

pytestmark = pytest.mark.portable

ACTIONS = hnp.arrays("int64", 50, elements=st.integers(0, 3))


CATEGORICAL = ActionKind("categorical", (3,))
GAUSSIAN = ActionKind("gaussian", (2,))


def rollout_of(states, valid, actions=None, **recorded):
    shape = valid.shape
    nothing = torch.zeros(shape)
    flags = torch.zeros(shape, dtype=torch.bool)
    observations = torch.cat([states.view(*shape, -1), torch.zeros(1, shape[1], states.shape[-1])])
    taken = nothing if actions is None else actions
    finals = torch.empty(0), torch.empty(0)
    return Rollout(observations, taken, nothing, flags, flags, valid, *finals, recorded)


class Threshold:
    """Its greedy action is 1 where the state lies above the threshold."""

    def __init__(self, threshold):
        self.threshold = threshold

    def greedy_actions(self, states):
        return (states[:, 0] > self.threshold).long()


STATES = torch.arange(100.0).unsqueeze(1)
ROLLOUT = rollout_of(STATES, torch.ones(10, 10, dtype=torch.bool))


class FixedPolicy:
    """The same distribution in every state, with actions in [−1, 1] where they are continuous."""

    def __init__(self, *parameters):
        self.row = torch.tensor(parameters)

    def policy_parameters(self, states):
        return self.row.expand(states.shape[0], -1)

    def greedy_actions(self, states):
        return self.policy_parameters(states).chunk(2, dim=1)[0].clamp(-1.0, 1.0)


def measurement(window="iteration", num_states=2048, every=1, unit="iterations", aspect=BEHAVIORAL_DIVERGENCE):
    signal = PolicyChange(aspect, window, num_states, Generator().manual_seed(0), torch.device("cpu"))
    return Measurement(signal, every, unit)


def reading_of(aspect, before, after, rollout=ROLLOUT):
    meter = measurement(aspect=aspect)
    return meter.compare(meter.observe(before, rollout), after)


@given(ACTIONS, ACTIONS)
def test_divergence_is_the_share_of_changed_actions(before, after):
    before, after = torch.from_numpy(before), torch.from_numpy(after)
    divergence = behavioral_divergence(before, after)
    assert abs(divergence - sum(b != a for b, a in zip(before.tolist(), after.tolist(), strict=True)) / 50) < 1e-6
    assert behavioral_divergence(after, before) == divergence
    assert behavioral_divergence(before, before) == 0.0


def test_one_changed_component_changes_a_joint_action():
    before = torch.tensor([[0, 1, 2], [0, 1, 2], [0, 1, 2], [3, 3, 3]])
    after = torch.tensor([[0, 1, 2], [0, 1, 3], [1, 2, 3], [3, 3, 3]])
    assert behavioral_divergence(before, after) == 0.5


def gaussian_view(actions, deviation=1.0):
    actions = torch.as_tensor(actions, dtype=torch.float32)
    return torch.cat([actions, torch.full_like(actions, deviation)], dim=1)


@pytest.mark.usefixtures("in_float64")
def test_a_continuous_action_has_changed_if_it_moved_further_than_the_tolerance():
    before = torch.tensor([[0.0, 0.5, 0.1, 2.0]] * 3)
    moves = torch.tensor([[0.0, 0.0], [0.01, 0.1], [0.02, -0.5]])  # 0, 0.079 and 0.227 standard deviations
    after = torch.cat([before[:, :2] + moves, 7.0 * before[:, 2:]], dim=1)  # the new deviations do not matter
    for tolerance in (0.05, 0.1, 0.3):
        lengths = [math.sqrt(((move[0] / 0.1) ** 2 + (move[1] / 2.0) ** 2) / 2) for move in moves.tolist()]
        expected = sum(length > tolerance for length in lengths) / 3
        assert continuous_divergence(before, after, tolerance) == pytest.approx(expected)
    assert continuous_divergence(before, before, 1e-9) == 0.0


@given(st.integers(1, 30), st.floats(0.0, 1.0))
def test_one_tolerance_serves_any_number_of_dimensions(dimensions, move):
    one, many = (
        continuous_divergence(gaussian_view([[0.0] * count]), gaussian_view([[move] * count]), 0.1)
        for count in (1, dimensions)
    )
    assert one == many or abs(move - 0.1) < 1e-6


@pytest.mark.usefixtures("in_float64")
def test_a_tolerated_move_of_r_is_a_kl_of_half_the_dimensions_times_r_squared():
    before, after = FixedPolicy(0.0, 0.0, math.log(0.5), math.log(0.5)), FixedPolicy(0.05, 0.05, *[math.log(0.5)] * 2)
    assert reading_of(continuous_behavior(0.0999), before, after) == 1.0
    assert reading_of(continuous_behavior(0.1001), before, after) == 0.0
    assert reading_of(kl_divergence(GAUSSIAN), before, after) == pytest.approx(2 * 0.1**2 / 2)


def test_a_mean_that_moves_beyond_the_edge_of_the_action_space_has_not_changed():
    outside, further, inside = (FixedPolicy(mean, 0.0, 0.0, 0.0) for mean in (1.5, 9.0, 0.5))
    assert reading_of(continuous_behavior(0.1), outside, further) == 0.0
    assert reading_of(continuous_behavior(0.1), outside, inside) == 1.0


@pytest.mark.usefixtures("in_float64")
def test_the_kl_signal_is_that_of_the_new_policy_from_the_old():
    old, new = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.7, 0.2, 0.1])
    before, after = FixedPolicy(*old.log().tolist()), FixedPolicy(*new.log().tolist())
    expected = sum(q * math.log(q / p) for p, q in zip(old.tolist(), new.tolist(), strict=True))
    backwards = sum(p * math.log(p / q) for p, q in zip(old.tolist(), new.tolist(), strict=True))
    assert reading_of(kl_divergence(CATEGORICAL), before, after) == pytest.approx(expected)
    assert abs(expected - backwards) > 0.01
    assert reading_of(kl_divergence(CATEGORICAL), before, before) == 0.0


@pytest.mark.usefixtures("in_float64")
def test_the_kl_signal_of_gaussians_matches_the_definition():
    before, after = FixedPolicy(0.0, 1.0, math.log(0.5), math.log(2.0)), FixedPolicy(0.3, 0.5, 0.0, math.log(1.5))
    moves = [(0.3, 0.5, 1.0), (-0.5, 2.0, 1.5)]
    expected = sum(math.log(old / new) + (new**2 + move**2) / (2 * old**2) - 0.5 for move, old, new in moves)
    assert reading_of(kl_divergence(GAUSSIAN), before, after) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_rounding_never_makes_a_kl_negative(seed):
    row = torch.randn(3, generator=Generator().manual_seed(seed)).tolist()
    before, after = FixedPolicy(*row), FixedPolicy(*[logit + 1e-7 for logit in row])
    entropy = torch.softmax(before.row, 0) * torch.log_softmax(before.row, 0)
    digits = rounding_of(entropy, entropy)  # of Σ p log p − Σ p log q, where p and q are almost the same
    assert 0.0 <= reading_of(kl_divergence(CATEGORICAL), before, after) < digits


@pytest.mark.usefixtures("in_float64")
def test_the_effective_sample_size_counts_the_actions_taken():
    actions = torch.tensor([0, 0, 1, 2]).repeat(25).view(10, 10)
    rollout = rollout_of(STATES, ROLLOUT.valid, actions)
    old, new = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.2, 0.7, 0.1])
    before, after = FixedPolicy(*old.log().tolist()), FixedPolicy(*new.log().tolist())
    weights = (new / old)[actions.flatten()]
    expected = (weights.sum() ** 2 / (100 * weights.square().sum())).item()
    assert reading_of(effective_sample_size(CATEGORICAL), before, after, rollout) == pytest.approx(expected)
    assert reading_of(effective_sample_size(CATEGORICAL), before, before, rollout) == pytest.approx(1.0)


@pytest.mark.usefixtures("in_float64")
def test_actions_are_looked_at_as_they_were_sampled_not_as_they_were_clipped():
    sampled = torch.randn(10, 10, 2, generator=Generator().manual_seed(1)) * 3.0
    clipped = sampled.clamp(-1.0, 1.0)
    rollout = rollout_of(STATES, ROLLOUT.valid, clipped, sampled_actions=sampled)
    before, after = FixedPolicy(0.0, 0.0, 0.0, 0.0), FixedPolicy(0.3, 0.0, 0.0, 0.0)
    weights = torch.exp(0.3 * sampled[..., 0].flatten() - 0.045)
    expected = (weights.sum() ** 2 / (100 * weights.square().sum())).item()
    reading = reading_of(effective_sample_size(GAUSSIAN), before, after, rollout)
    assert reading == pytest.approx(expected)
    unsampled = reading_of(effective_sample_size(GAUSSIAN), before, after, rollout_of(STATES, ROLLOUT.valid, clipped))
    assert unsampled > reading + 0.01


def test_each_kind_of_action_has_its_own_way_to_look():
    assert make_aspect("behavioral_divergence", CATEGORICAL, 0.1) is BEHAVIORAL_DIVERGENCE
    before, after = FixedPolicy(0.0, 0.0, 0.0, 0.0), FixedPolicy(0.2, 0.2, 0.0, 0.0)
    assert reading_of(make_aspect("behavioral_divergence", GAUSSIAN, 0.1), before, after) == 1.0
    assert reading_of(make_aspect("behavioral_divergence", GAUSSIAN, 0.3), before, after) == 0.0
    for name in ("behavioral_divergence", "kl_divergence", "effective_sample_size"):
        assert make_aspect(name, GAUSSIAN, 0.1).name == name


def test_a_reading_compares_the_policy_before_and_after_one_update():
    meter, learner = measurement(), Threshold(49.5)
    look = meter.observe(learner, ROLLOUT)
    learner.threshold = 29.5
    assert abs(meter.compare(look, learner) - 0.2) < 1e-6


def test_an_interval_compares_with_the_reading_before_on_the_states_of_that_time():
    meter, learner = measurement(window="interval"), Threshold(49.5)
    assert meter.compare(meter.observe(learner, ROLLOUT), learner) is None
    learner.threshold = 29.5
    later = rollout_of(STATES + 1000.0, ROLLOUT.valid)
    assert abs(meter.compare(meter.observe(learner, later), learner) - 0.2) < 1e-6


def test_an_interval_begins_after_the_update_of_the_reading_before():
    meter, learner = measurement(window="interval"), Threshold(49.5)
    look = meter.observe(learner, ROLLOUT)
    learner.threshold = 29.5
    assert meter.compare(look, learner) is None
    look = meter.observe(learner, ROLLOUT)
    learner.threshold = 19.5
    assert abs(meter.compare(look, learner) - 0.1) < 1e-6


def test_an_interval_survives_a_restart():
    meter, learner = measurement(window="interval"), Threshold(49.5)
    meter.compare(meter.observe(learner, ROLLOUT), learner)
    restored = measurement(window="interval")
    restored.load_state_dict(deepcopy(meter.state_dict()))
    assert restored.seconds == meter.seconds > 0.0
    learner.threshold = 29.5
    assert abs(restored.compare(restored.observe(learner, ROLLOUT), learner) - 0.2) < 1e-6


def test_an_interval_of_effective_sample_sizes_survives_a_restart_with_its_actions():
    rollout = rollout_of(STATES, ROLLOUT.valid, torch.arange(100).view(10, 10) % 3)
    aspect, learner = effective_sample_size(CATEGORICAL), FixedPolicy(0.0, 0.0, 0.0)
    meter, restored = (measurement(window="interval", num_states=30, aspect=aspect) for _ in range(2))
    assert meter.compare(meter.observe(learner, rollout), learner) is None
    restored.load_state_dict(deepcopy(meter.state_dict()))
    learner.row = torch.tensor([1.0, 0.0, -1.0])
    later = rollout_of(STATES + 1000.0, ROLLOUT.valid, torch.zeros(10, 10, dtype=torch.long))
    looks = [twin.observe(learner, later) for twin in (meter, restored)]
    assert torch.equal(looks[0].probe.states, looks[1].probe.states)
    readings = [twin.compare(look, learner) for twin, look in zip((meter, restored), looks, strict=True)]
    assert readings[0] == readings[1] < 0.9  # of the actions kept; those taken later would read 1


def test_states_are_distinct_valid_and_at_most_as_many_as_asked():
    valid = torch.ones(10, 10, dtype=torch.bool)
    valid[5:] = False
    states = measurement(num_states=30).observe(Threshold(0), rollout_of(STATES, valid)).probe.states[:, 0].tolist()
    assert len(set(states)) == 30
    assert max(states) < 50
    everything = measurement(num_states=2048).observe(Threshold(0), rollout_of(STATES, valid)).probe.states
    assert everything.shape[0] == 50


def test_readings_are_due_every_k_iterations_or_env_steps():
    by_iteration, by_step = measurement(every=3), measurement(every=100, unit="env-steps")
    assert [by_iteration.due(iteration, 0) for iteration in range(1, 8)] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]
    assert [by_step.due(0, steps) for steps in (60, 120, 180, 350)] == [False, True, False, True]
