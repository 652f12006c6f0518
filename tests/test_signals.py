"""Behavioral divergence, and when and where it is measured."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Generator

from swell.signals import BEHAVIORAL_DIVERGENCE, Measurement, behavioral_divergence
from swell.types import Rollout

ACTIONS = hnp.arrays("int64", 50, elements=st.integers(0, 3))


def rollout_of(states, valid):
    shape = valid.shape
    nothing = torch.zeros(shape)
    flags = torch.zeros(shape, dtype=torch.bool)
    observations = torch.cat([states.view(*shape, -1), torch.zeros(1, shape[1], states.shape[-1])])
    return Rollout(observations, nothing, nothing, flags, flags, valid, torch.empty(0), torch.empty(0))


class Threshold:
    """Its greedy action is 1 where the state lies above the threshold."""

    def __init__(self, threshold):
        self.threshold = threshold

    def greedy_actions(self, states):
        return (states[:, 0] > self.threshold).long()


STATES = torch.arange(100.0).unsqueeze(1)
ROLLOUT = rollout_of(STATES, torch.ones(10, 10, dtype=torch.bool))


def measurement(window="iteration", num_states=2048, every=1, unit="iterations"):
    generator = Generator().manual_seed(0)
    return Measurement(BEHAVIORAL_DIVERGENCE, every, unit, window, num_states, generator, torch.device("cpu"))


@given(ACTIONS, ACTIONS)
def test_divergence_is_the_share_of_changed_actions(before, after):
    before, after = torch.from_numpy(before), torch.from_numpy(after)
    divergence = behavioral_divergence(before, after)
    assert abs(divergence - sum(b != a for b, a in zip(before.tolist(), after.tolist(), strict=True)) / 50) < 1e-6
    assert behavioral_divergence(after, before) == divergence
    assert behavioral_divergence(before, before) == 0.0


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


def test_an_interval_survives_a_restart():
    meter, learner = measurement(window="interval"), Threshold(49.5)
    meter.compare(meter.observe(learner, ROLLOUT), learner)
    restored = measurement(window="interval")
    restored.load_state_dict(meter.state_dict())
    learner.threshold = 29.5
    assert abs(restored.compare(restored.observe(learner, ROLLOUT), learner) - 0.2) < 1e-6


def test_states_are_distinct_valid_and_at_most_as_many_as_asked():
    valid = torch.ones(10, 10, dtype=torch.bool)
    valid[5:] = False
    states = measurement(num_states=30).observe(Threshold(0), rollout_of(STATES, valid)).states[:, 0].tolist()
    assert len(set(states)) == 30
    assert max(states) < 50
    everything = measurement(num_states=2048).observe(Threshold(0), rollout_of(STATES, valid)).states
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
