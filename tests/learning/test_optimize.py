"""Minibatches, micro-batches and clipped steps."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, nn

from swell.errors import DivergedError
from swell.learning.optimize import (
    FlatAdam,
    accumulate_gradients,
    by_autograd,
    clipped_step,
    flat_parameters,
    shuffled_minibatches,
)
from swell.networks.actor_critics import make_actor_critic

pytestmark = pytest.mark.portable


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

    whole = accumulate_gradients(by_autograd(sample_losses), torch.arange(32), 32)
    expected = network.weight.grad.clone()
    network.zero_grad()
    parts = accumulate_gradients(by_autograd(sample_losses), torch.arange(32), micro_batch_size)
    torch.testing.assert_close(network.weight.grad, expected)
    assert parts == pytest.approx(whole)


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
    return make_actor_critic("minatar-cnn", (4, 10, 10), "categorical", 3, "shared", (8,), "channels", "relu", 0, False)


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
