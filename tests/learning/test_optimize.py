"""Minibatches, micro-batches where memory runs out too, clipped steps, and means over all samples of an update."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from policy_learners import learner_for, read_by, rollout_of, weights
from scripted_envs import ScriptedEnvs
from torch import Generator, nn

from swell.algorithms import pqn
from swell.config.learners import PolicySettings
from swell.errors import DivergedError, is_out_of_memory
from swell.learning import policy_learner
from swell.learning.distributions import ActionKind
from swell.learning.optimize import (
    FlatAdam,
    SampleMeans,
    accumulate_gradients,
    by_autograd,
    clipped_step,
    flat_parameters,
    shuffled,
    shuffled_minibatches,
)
from swell.networks.actor_critics import make_actor_critic
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

CPU_MESSAGE = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 3))
def test_each_epoch_deals_every_index_once_into_even_minibatches(count, minibatches, epochs):
    indices = torch.arange(count) * 7
    dealt = list(shuffled_minibatches(indices, minibatches, epochs, Generator().manual_seed(0)))
    per_epoch = min(minibatches, count)
    assert len(dealt) == epochs * per_epoch
    for epoch in range(epochs):
        parts = dealt[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(torch.cat(parts).tolist()) == indices.tolist()
        sizes = [len(part) for part in parts]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("minibatches", [1, 4])
def test_orders_that_are_drawn_at_once_are_those_of_one_epoch_after_the_other(minibatches):
    indices, generator = torch.arange(30) * 7, Generator().manual_seed(0)
    at_once = shuffled(indices, minibatches, 3, Generator().manual_seed(0))
    one_by_one = [torch.cat(list(shuffled_minibatches(indices, minibatches, 1, generator))) for _ in range(3)]
    assert torch.equal(at_once, torch.stack(one_by_one))


def test_epochs_come_in_different_orders():
    first, _, second, _ = shuffled_minibatches(torch.arange(100), 2, 2, Generator().manual_seed(0))
    assert sorted(first.tolist()) != sorted(second.tolist())


@given(st.integers(1, 33))
@settings(deadline=None)
def test_micro_batches_give_the_gradient_of_the_whole_minibatch(micro_batch_size):
    torch.manual_seed(0)
    network, inputs = nn.Linear(3, 1).double(), torch.randn(32, 3, dtype=torch.float64)

    def sample_losses(chosen):
        return network(inputs[chosen]).square().squeeze(1)

    nothing_yet = torch.zeros(0)
    whole, _ = accumulate_gradients(by_autograd(sample_losses), torch.arange(32), 32, nothing_yet)
    expected = network.weight.grad.clone()
    network.zero_grad()
    parts, size = accumulate_gradients(by_autograd(sample_losses), torch.arange(32), micro_batch_size, nothing_yet)
    torch.testing.assert_close(network.weight.grad, expected)
    assert parts == pytest.approx(whole)
    assert size == micro_batch_size


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
    loss, size = accumulate_gradients(ample.add_gradient, everything, 32, ample.flat.grad)
    assert size == 32
    tight = Tight(room=9, error=error)
    tight_loss, tight_size = accumulate_gradients(tight.add_gradient, everything, 32, tight.flat.grad)
    assert tight_loss == pytest.approx(loss)
    torch.testing.assert_close(tight.flat.grad, ample.flat.grad)
    assert tight_size == 8
    assert tight.sizes == [32, 16, 8, 8, 8, 8]


@pytest.mark.usefixtures("in_float64")
def test_what_was_added_before_it_failed_does_not_count_twice():
    ample, tight = Tight(room=32), Tight(room=32)
    everything = torch.arange(32)
    accumulate_gradients(ample.add_gradient, everything, 32, ample.flat.grad)
    calls = []

    def fails_once_in_the_middle(chosen, minibatch_size):
        calls.append(len(chosen))
        if len(calls) == 2:
            raise RuntimeError(CPU_MESSAGE)
        return tight.add_gradient(chosen, minibatch_size)

    accumulate_gradients(fails_once_in_the_middle, everything, 16, tight.flat.grad)
    assert calls == [16, 16, 8, 8, 8, 8]
    torch.testing.assert_close(tight.flat.grad, ample.flat.grad)


def test_a_single_sample_that_does_not_fit_is_an_error():
    tight = Tight(room=0)
    with pytest.raises(RuntimeError, match="can't allocate"):
        accumulate_gradients(tight.add_gradient, torch.arange(32), 4, tight.flat.grad)
    assert tight.sizes == [4, 2, 1]


def test_other_errors_are_not_about_memory():
    def broken(chosen, minibatch_size):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="multiplied"):
        accumulate_gradients(broken, torch.arange(8), 4, torch.zeros(1))
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("algorithm", ["pqn", "ppo", "ppo-ewma", "ppg", "ess"])
def test_a_learner_steps_back_and_goes_on(algorithm, monkeypatch):
    """The first pass of more than five samples through the network fails; the update ends like one in small parts."""
    fields = read_by(algorithm, phase_env_steps=10**6)
    steady = learner_for(ScriptedEnvs(), algorithm, micro_batch_size=5, **fields)
    struck = learner_for(ScriptedEnvs(), algorithm, micro_batch_size=10, **fields)
    rollout = rollout_of(steady, ScriptedEnvs())
    plan = BatchPlan(20, 2, 4)
    steady.update(rollout, plan, 0.0)

    def accumulate(add_gradient, *arguments):
        def tight(chosen, minibatch_size):
            raise_if_more(len(chosen), 5, RuntimeError)
            return add_gradient(chosen, minibatch_size)

        return accumulate_gradients(tight, *arguments)

    monkeypatch.setattr(pqn if algorithm == "pqn" else policy_learner, "accumulate_gradients", accumulate)
    struck.update(rollout, plan, 0.0)
    assert struck.micro_batch_size == 5
    torch.testing.assert_close(weights(struck), weights(steady))


def one_parameter(gradient):
    """Two weights of zero; their first step is −g / (|g| + 50)."""
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor(gradient)
    return parameter, FlatAdam(parameter, 1.0, epsilon=50.0)


@pytest.mark.usefixtures("in_float64")
def test_a_long_gradient_is_cut_to_the_norm_and_its_true_length_returned():
    parameter, optimizer = one_parameter([30.0, 40.0])
    assert clipped_step(optimizer, 10.0, loss=1.0) == pytest.approx(50.0)
    torch.testing.assert_close(parameter.detach(), torch.tensor([-6.0 / 56.0, -8.0 / 58.0]))
    assert parameter.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("loss", "gradient"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)])
def test_what_is_not_finite_never_reaches_the_weights(loss, gradient):
    parameter, optimizer = one_parameter([gradient, 0.0])
    with pytest.raises(DivergedError, match="no finite update"):
        clipped_step(optimizer, 10.0, loss)
    assert parameter.tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("limit", [None, 50.0])
def test_a_gradient_within_the_limit_is_not_cut(limit):
    parameter, optimizer = one_parameter([30.0, 40.0])
    assert clipped_step(optimizer, limit, loss=1.0) == pytest.approx(50.0)
    torch.testing.assert_close(parameter.detach(), torch.tensor([-30.0 / 80.0, -40.0 / 90.0]))


def pictures_policy():
    """An actor-critic with a convolution whose weights lie channels-last."""
    torch.manual_seed(0)
    settings = PolicySettings(network="minatar-cnn", architecture="shared", norm_over="channels")
    return make_actor_critic(settings, (4, 10, 10), ActionKind("categorical", (3,)))


def loss_of(network, pictures):
    parameters, values = network(pictures)
    return parameters.square().mean() + (values - 1.0).square().mean()


@pytest.mark.usefixtures("in_float64")
def test_parameters_and_gradients_become_views_of_one_vector():
    network = pictures_policy()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    flat = flat_parameters(network)
    assert flat.numel() == sum(parameter.numel() for parameter in before)
    for parameter, value in zip(network.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
        assert parameter.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()
        assert parameter.grad.untyped_storage().data_ptr() == flat.grad.untyped_storage().data_ptr()
    loss_of(network, torch.ones(2, 4, 10, 10)).backward()
    norms = [parameter.grad.square().sum() for parameter in network.parameters()]
    torch.testing.assert_close(flat.grad.square().sum(), sum(norms))
    assert flat.grad.any()
    with torch.no_grad():
        flat.zero_()
    assert not any(parameter.any() for parameter in network.parameters())


@pytest.mark.usefixtures("in_float64")
def test_a_step_of_the_vector_is_a_step_of_each_parameter():
    pictures = torch.rand(8, 4, 10, 10, generator=Generator().manual_seed(0))
    together, apart = pictures_policy(), pictures_policy()
    optimizer, reference = FlatAdam(flat_parameters(together), 1e-2), torch.optim.Adam(apart.parameters(), lr=1e-2)
    for _ in range(5):
        loss = loss_of(together, pictures)
        loss.backward()
        clipped_step(optimizer, 0.5, loss.item())
        reference.zero_grad()
        loss_of(apart, pictures).backward()
        nn.utils.clip_grad_norm_(apart.parameters(), 0.5)
        reference.step()
    begun = pictures_policy()
    for one, other, start in zip(*(network.parameters() for network in (together, apart, begun)), strict=True):
        torch.testing.assert_close(one, other)
        assert not torch.equal(one, start)


def test_a_flat_network_keeps_its_memory_format():
    network = pictures_policy()
    strides = [parameter.stride() for parameter in network.parameters()]
    flat_parameters(network)
    assert [parameter.stride() for parameter in network.parameters()] == strides
    assert [parameter.grad.stride() for parameter in network.parameters()] == strides
    (convolution,) = (module for module in network.modules() if isinstance(module, nn.Conv2d))
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    assert not convolution.weight.is_contiguous()


@pytest.mark.usefixtures("in_float64")
def test_a_loaded_state_reaches_the_vector():
    network, other = pictures_policy(), pictures_policy()
    with torch.no_grad():
        other.policy_head.bias += 1.0
    flat = flat_parameters(network)
    before = flat.detach().clone()
    network.load_state_dict(other.state_dict())
    assert (flat - before).abs().sum().item() == pytest.approx(3.0)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("beta2", "epsilon"), [(0.999, 1e-8), (0.9, 1e-8), (0.99, 1e-2)])
@pytest.mark.parametrize("rectified", [True, False])
def test_the_steps_are_those_of_torch(beta2, epsilon, rectified):
    """With new numbers at each; RAdam over its first, unrectified steps (five for 0.999) and those after them."""
    generator = Generator().manual_seed(0)
    ours, theirs = (nn.Parameter(torch.linspace(-1.0, 1.0, 50)) for _ in range(2))
    optimizer = FlatAdam(ours, 0.01, (0.9, beta2), epsilon, rectified=rectified)
    kind = torch.optim.RAdam if rectified else torch.optim.Adam
    reference = kind([theirs], lr=0.01, betas=(0.9, beta2), eps=epsilon)
    for number in range(40):
        optimizer.learning_rate = reference.param_groups[0]["lr"] = 0.01 / (1 + number)
        gradient = torch.randn(50, generator=generator)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        optimizer.step()
        reference.step()
        torch.testing.assert_close(ours, theirs)


def test_a_restored_optimizer_goes_on_as_the_one_it_was_saved_from():
    generator = Generator().manual_seed(0)
    gradients = torch.randn(12, 5, generator=generator)
    parameter, twin = (nn.Parameter(torch.ones(5)) for _ in range(2))
    optimizer = FlatAdam(parameter, 0.1, rectified=True)
    for gradient in gradients[:6]:
        parameter.grad = gradient
        optimizer.step()
    restored = FlatAdam(twin, 0.1, rectified=True)
    restored.load_state_dict({name: value.clone() for name, value in optimizer.state_dict().items()})
    with torch.no_grad():
        twin.copy_(parameter)
    for gradient in gradients[6:]:
        for each, vector in ((optimizer, parameter), (restored, twin)):
            vector.grad = gradient
            each.step()
    assert torch.equal(parameter, twin)


def test_every_sample_counts_the_same_whatever_its_minibatch():
    means = SampleMeans()
    means.add(loss=torch.tensor([1.0, 2.0, 3.0]), kl=torch.tensor([4.0]))
    means.add(loss=torch.tensor([10.0]))
    assert means.mean("loss") == pytest.approx(4.0)
    assert means.means() == pytest.approx({"loss": 4.0, "kl": 4.0})


def test_sample_means_keep_no_graph():
    means, losses = SampleMeans(), torch.ones(3, requires_grad=True)
    means.add(loss=losses.square())
    assert not means._sums["loss"].requires_grad


def test_what_was_never_counted_is_absent():
    assert SampleMeans().means() == {}
