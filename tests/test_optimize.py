"""Minibatches, micro-batches and clipped steps."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, nn

from swell.errors import DivergedError
from swell.optimize import accumulate_gradients, clipped_step, shuffled_minibatches


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
    first, second = shuffled_minibatches(torch.arange(100), 1, 2, Generator().manual_seed(0))
    assert first.tolist() != second.tolist()


@given(st.integers(1, 33))
@settings(deadline=None)
def test_micro_batches_give_the_gradient_of_the_whole_minibatch(micro_batch_size):
    torch.manual_seed(0)
    network, inputs = nn.Linear(3, 1).double(), torch.randn(32, 3, dtype=torch.float64)

    def sample_losses(chosen):
        return network(inputs[chosen]).square().squeeze(1)

    whole = accumulate_gradients(sample_losses, torch.arange(32), 32)
    expected = network.weight.grad.clone()
    network.zero_grad()
    parts = accumulate_gradients(sample_losses, torch.arange(32), micro_batch_size)
    torch.testing.assert_close(network.weight.grad, expected)
    assert parts == pytest.approx(whole)


def one_parameter(gradient):
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor(gradient)
    return parameter, torch.optim.SGD([parameter], lr=1.0)


def test_a_long_gradient_is_cut_to_the_norm_and_its_true_length_returned():
    parameter, optimizer = one_parameter([30.0, 40.0])
    assert clipped_step(optimizer, 10.0, loss=1.0) == pytest.approx(50.0)
    torch.testing.assert_close(parameter.detach(), torch.tensor([-6.0, -8.0]))


@pytest.mark.parametrize(("loss", "gradient"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)])
def test_what_is_not_finite_never_reaches_the_weights(loss, gradient):
    parameter, optimizer = one_parameter([gradient, 0.0])
    with pytest.raises(DivergedError, match="no finite update"):
        clipped_step(optimizer, 10.0, loss)
    assert parameter.tolist() == [0.0, 0.0]
