"""When memory runs out during an update: the same gradient in smaller parts."""

import pytest
import torch
from policy_learners import learner_for, rollout_of, weights
from scripted_envs import ScriptedEnvs
from torch import nn

from swell.learning.micro_batches import MicroBatches, is_out_of_memory
from swell.learning.optimize import by_autograd, flat_parameters
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

CPU_MESSAGE = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"


class Tight:
    """Losses of a linear network on a machine that has room for so many samples at once."""

    def __init__(self, room, error=RuntimeError):
        torch.manual_seed(0)
        self.network, self.inputs = nn.Linear(3, 1), torch.randn(32, 3)
        self.flat = flat_parameters(self.network)
        self.room, self.error = room, error
        self.sizes = []

    def add_gradient(self, chosen, minibatch_size):
        self.sizes.append(len(chosen))
        raise_if_more(len(chosen), self.room, self.error)
        return by_autograd(lambda rows: self.network(self.inputs[rows]).square().squeeze(1))(chosen, minibatch_size)


def raise_if_more(count, room, error):
    if count > room:
        raise error(CPU_MESSAGE)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("error", [RuntimeError, MemoryError, torch.OutOfMemoryError])
def test_a_gradient_that_did_not_fit_comes_in_smaller_parts(error):
    everything, ample = torch.arange(32), Tight(room=32)
    loss = MicroBatches(32).accumulate(ample.add_gradient, everything, ample.flat.grad)
    tight, micro_batches = Tight(room=9, error=error), MicroBatches(32)
    assert micro_batches.accumulate(tight.add_gradient, everything, tight.flat.grad) == pytest.approx(loss)
    torch.testing.assert_close(tight.flat.grad, ample.flat.grad)
    assert micro_batches.size == 8
    assert tight.sizes == [32, 16, 8, 8, 8, 8]


@pytest.mark.usefixtures("in_float64")
def test_what_was_added_before_it_failed_does_not_count_twice():
    ample, tight = Tight(room=32), Tight(room=32)
    everything = torch.arange(32)
    MicroBatches(32).accumulate(ample.add_gradient, everything, ample.flat.grad)
    calls = []

    def fails_once_in_the_middle(chosen, minibatch_size):
        calls.append(len(chosen))
        if len(calls) == 2:
            raise RuntimeError(CPU_MESSAGE)
        return tight.add_gradient(chosen, minibatch_size)

    MicroBatches(16).accumulate(fails_once_in_the_middle, everything, tight.flat.grad)
    assert calls == [16, 16, 8, 8, 8, 8]
    torch.testing.assert_close(tight.flat.grad, ample.flat.grad)


def test_a_single_sample_that_does_not_fit_is_an_error():
    tight = Tight(room=0)
    with pytest.raises(RuntimeError, match="can't allocate"):
        MicroBatches(4).accumulate(tight.add_gradient, torch.arange(32), tight.flat.grad)
    assert tight.sizes == [4, 2, 1]


def test_other_errors_are_not_about_memory():
    def broken(chosen, minibatch_size):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="multiplied"):
        MicroBatches(4).accumulate(broken, torch.arange(8), torch.zeros(1))
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("algorithm", ["pqn", "ppo", "ppo-ewma", "ppg", "ess"])
def test_a_learner_steps_back_and_goes_on(algorithm, monkeypatch):
    """The first pass of more than five samples through the network fails; the update ends like one in small parts."""
    steady = learner_for(ScriptedEnvs(), algorithm, micro_batch_size=5, phase_env_steps=10**6)
    struck = learner_for(ScriptedEnvs(), algorithm, micro_batch_size=10, phase_env_steps=10**6)
    rollout = rollout_of(steady, ScriptedEnvs())
    plan = BatchPlan(20, 2, 4)
    steady.update(rollout, plan, 0.0)
    original = MicroBatches.accumulate

    def accumulate(self, add_gradient, minibatch, gradient):
        def tight(chosen, minibatch_size):
            raise_if_more(len(chosen), 5, RuntimeError)
            return add_gradient(chosen, minibatch_size)

        return original(self, tight, minibatch, gradient)

    monkeypatch.setattr(MicroBatches, "accumulate", accumulate)
    struck.update(rollout, plan, 0.0)
    assert struck.micro_batches.size == 5
    torch.testing.assert_close(weights(struck), weights(steady))
