"""When a signal looks at the policy, and on which states."""

from copy import deepcopy

import pytest
import torch
from torch import Generator

from swell.batch.signals import BehavioralDivergence, EffectiveSampleSize
from swell.learning.distributions import ActionKind
from swell.measurement import Measurement
from swell.types import PolicyView, Rollout

pytestmark = pytest.mark.portable

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

    def view(self, states, actions):
        return PolicyView((states[:, 0] > self.threshold).long())


class FixedPolicy:
    """The same distribution in every state."""

    def __init__(self, kind, *parameters):
        self.kind = kind
        self.row = torch.tensor(parameters)

    def view(self, states, actions):
        parameters = self.row.expand(states.shape[0], -1)
        distribution = self.kind.distribution(parameters)
        return PolicyView(distribution.mode(), parameters, self.kind, distribution.log_prob(actions))


STATES = torch.arange(100.0).unsqueeze(1)
ROLLOUT = rollout_of(STATES, torch.ones(10, 10, dtype=torch.bool))


def measurement(window="iteration", num_states=2048, every=1, unit="iterations", signal=None):
    return Measurement(signal or BehavioralDivergence(), every, unit, probe_states=num_states, window=window)


def reading_of(signal, before, after, rollout=ROLLOUT):
    meter = measurement(signal=signal)

    class Learner:
        policy = before

        def view(self, states, actions):
            return self.policy.view(states, actions)

    learner = Learner()
    look = meter.observe(learner, rollout)
    learner.policy = after
    return meter.compare(look, learner)


@pytest.mark.usefixtures("in_float64")
def test_actions_are_looked_at_as_they_were_sampled_not_as_they_were_clipped():
    sampled = torch.randn(10, 10, 2, generator=Generator().manual_seed(1)) * 3.0
    clipped = sampled.clamp(-1.0, 1.0)
    rollout = rollout_of(STATES, ROLLOUT.valid, clipped, sampled_actions=sampled)
    before, after = FixedPolicy(GAUSSIAN, 0.0, 0.0, 0.0, 0.0), FixedPolicy(GAUSSIAN, 0.3, 0.0, 0.0, 0.0)
    weights = torch.exp(0.3 * sampled[..., 0].flatten() - 0.045)
    expected = (weights.sum() ** 2 / (100 * weights.square().sum())).item()
    reading = reading_of(EffectiveSampleSize(), before, after, rollout)
    assert reading == pytest.approx(expected)
    unsampled = reading_of(EffectiveSampleSize(), before, after, rollout_of(STATES, ROLLOUT.valid, clipped))
    assert unsampled > reading + 0.01


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
    learner = FixedPolicy(CATEGORICAL, 0.0, 0.0, 0.0)
    meter, restored = (measurement(window="interval", num_states=30, signal=EffectiveSampleSize()) for _ in range(2))
    assert meter.compare(meter.observe(learner, rollout), learner) is None
    restored.load_state_dict(deepcopy(meter.state_dict()))
    learner.row = torch.tensor([1.0, 0.0, -1.0])
    later = rollout_of(STATES + 1000.0, ROLLOUT.valid, torch.zeros(10, 10, dtype=torch.long))
    looks = [twin.observe(learner, later) for twin in (meter, restored)]
    assert torch.equal(looks[0][0].states, looks[1][0].states)
    readings = [twin.compare(look, learner) for twin, look in zip((meter, restored), looks, strict=True)]
    assert readings[0] == readings[1] < 0.9  # of the actions kept; those taken later would read 1


def test_states_are_distinct_valid_and_at_most_as_many_as_asked():
    valid = torch.ones(10, 10, dtype=torch.bool)
    valid[5:] = False
    states = measurement(num_states=30).observe(Threshold(0), rollout_of(STATES, valid))[0].states[:, 0].tolist()
    assert len(set(states)) == 30
    assert max(states) < 50
    everything = measurement(num_states=2048).observe(Threshold(0), rollout_of(STATES, valid))[0].states
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
