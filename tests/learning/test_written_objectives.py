"""Slopes of losses, written out: the same as autograd's."""

import math

import pytest
import torch
from tolerances import rounding_of
from torch import Generator, Tensor

from swell.learning.losses import clipped_surrogate, clipped_value_error, q_regression, value_error
from swell.learning.written_objectives import clipped_surrogate_slopes, q_regression_slopes, value_error_slopes

pytestmark = pytest.mark.portable


def gradient(losses: Tensor, inputs: Tensor) -> Tensor:
    return torch.autograd.grad(losses.sum(), inputs)[0]


def random_batch(count=500, spread=0.5):
    """ℓ or V, what it was before, ℓ_b or R, and A, in float64."""
    generator = Generator().manual_seed(0)
    behavior = torch.randn(count, generator=generator, dtype=torch.float64) - 2
    proximal = behavior + spread * torch.randn(count, generator=generator, dtype=torch.float64)
    log_probs = proximal + spread * torch.randn(count, generator=generator, dtype=torch.float64)
    advantages = torch.randn(count, generator=generator, dtype=torch.float64)
    return log_probs.requires_grad_(), proximal, behavior, advantages


@pytest.mark.usefixtures("in_float64")
def test_the_slopes_of_q_regression_are_its_gradients():
    q_values = torch.randn(6, 3, requires_grad=True)
    actions, targets = torch.tensor([0, 1, 2, 0, 1, 2]), torch.randn(6)
    expected = q_regression(q_values, actions, targets)
    losses, slopes = q_regression_slopes(q_values.detach(), actions, targets)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(slopes, gradient(expected, q_values))


@pytest.mark.parametrize("clip_range", [0.0, 0.05, 0.2, 0.9, 1.0, 2.5, math.inf])
def test_the_slopes_of_the_clipped_surrogate_are_its_gradients(clip_range):
    log_probs, _, behavior, advantages = random_batch()
    expected = clipped_surrogate(log_probs, behavior, advantages, clip_range)
    losses, slopes = clipped_surrogate_slopes(log_probs.detach(), behavior, advantages, clip_range)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(slopes, gradient(expected, log_probs))


@pytest.mark.parametrize("clip_range", [None, 0.2, 1.0])
def test_the_slopes_of_value_errors_are_their_gradients(clip_range):
    values, old_values, returns, _ = random_batch(spread=1.0)
    old_values = None if clip_range is None else old_values
    if old_values is None:
        expected = value_error(values, returns)
    else:
        expected = clipped_value_error(values, old_values, returns, clip_range)
    losses, slopes = value_error_slopes(values.detach(), returns, old_values, clip_range or 0.0)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(slopes, gradient(expected, values))


@pytest.mark.parametrize("clip_range", [0.1, 0.2])
def test_rounding_drops_no_slope_of_a_value_inside_the_clip_range(clip_range):
    """V_c = V_old + (V − V_old) is V but for the last digits, so either of the two losses may be the larger one.

    The slope is 2 (V − R) all the same. Autograd has it from V or from V_c, or half of it from each where the losses
    agree: V_c − R is a sum of the four terms V_old, V, −V_old and −R, and adding the halves rounds once more.
    """
    # Each with all its digits: of sums such as V = V_old + δ, float32 would find V − V_old without rounding.
    values, old_values, returns = 0.05 * torch.randn(3, 10_000, generator=Generator().manual_seed(0))
    old_values = torch.where((values - old_values).abs() < 0.09, old_values, values)
    values.requires_grad_()
    assert values.dtype == torch.float32 and (values - old_values).abs().max() < clip_range
    expected = clipped_value_error(values, old_values, returns, clip_range)
    losses, slopes = value_error_slopes(values.detach(), returns, old_values, clip_range)
    assert torch.equal(losses, expected.detach())
    assert torch.equal(slopes, 2.0 * (values - returns).detach())
    digits = rounding_of(*(2.0 * term.detach().abs().max() for term in (old_values, values, old_values, returns)))
    torch.testing.assert_close(slopes, gradient(expected, values), rtol=0.0, atol=digits)


def test_a_value_that_the_clip_range_holds_back_has_no_slope():
    """Old value 0, range 0.1: beyond it a value has a slope where going back would make it better."""
    values, returns = torch.tensor([0.3, 0.3, -0.3, -0.3]), torch.tensor([1.0, -1.0, -1.0, 1.0])
    _, slopes = value_error_slopes(values, returns, torch.zeros(4), 0.1)
    assert slopes.tolist() == pytest.approx([0.0, 2.6, 0.0, -2.6])
