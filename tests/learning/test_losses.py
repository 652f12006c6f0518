"""Losses against their definitions, and the identities that tie them to one another."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Generator, Tensor

from swell.batch.signals import effective_sample_size
from swell.learning.losses import (
    capped_behavior,
    clipped_surrogate,
    clipped_value_error,
    decoupled_clip,
    ess_policy_loss,
    k3_penalty,
    q_regression,
    squared_log_ratio,
    unclipped_surrogate,
    value_error,
)

pytestmark = pytest.mark.portable

CLIP_RANGES = [0.05, 0.2, 0.9, 1.0, 2.5]


def random_batch(count=500, spread=0.5):
    """ℓ, ℓ_p, ℓ_b and A in float64; the ratios stay below the cap."""
    generator = Generator().manual_seed(0)
    behavior = torch.randn(count, generator=generator, dtype=torch.float64) - 2
    proximal = behavior + spread * torch.randn(count, generator=generator, dtype=torch.float64)
    log_probs = proximal + spread * torch.randn(count, generator=generator, dtype=torch.float64)
    advantages = torch.randn(count, generator=generator, dtype=torch.float64)
    return log_probs.requires_grad_(), proximal, behavior, advantages


def gradient(losses: Tensor, inputs: Tensor) -> Tensor:
    return torch.autograd.grad(losses.sum(), inputs)[0]


def test_q_regression_looks_only_at_the_chosen_action():
    q_values = torch.tensor([[1.0, 5.0], [2.0, 7.0]])
    assert q_regression(q_values, torch.tensor([1, 0]), torch.tensor([2.0, 2.5])).tolist() == [9.0, 0.25]


@pytest.mark.parametrize("clip_range", CLIP_RANGES)
def test_the_clipped_surrogate_is_ppos(clip_range):
    log_probs, _, behavior, advantages = random_batch()
    ratios = (log_probs - behavior).exp()
    expected = -torch.minimum(ratios * advantages, ratios.clamp(1 - clip_range, 1 + clip_range) * advantages)
    losses = clipped_surrogate(log_probs, behavior, advantages, clip_range)
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradient(losses, log_probs), gradient(expected, log_probs))


@pytest.mark.parametrize("clip_range", [0.0, *CLIP_RANGES, math.inf])
def test_decoupled_clip_is_ppo_where_the_proximal_policy_is_the_behavior_policy(clip_range):
    log_probs, _, behavior, advantages = random_batch()
    decoupled = decoupled_clip(log_probs, behavior, behavior, advantages, clip_range)
    plain = clipped_surrogate(log_probs, behavior, advantages, clip_range)
    torch.testing.assert_close(decoupled, plain)
    torch.testing.assert_close(gradient(decoupled, log_probs), gradient(plain, log_probs))


@pytest.mark.parametrize("clip_range", CLIP_RANGES)
def test_decoupled_clip_weights_the_proximal_objective_for_the_behavior_policy(clip_range):
    log_probs, proximal, behavior, advantages = random_batch()
    ratios = (log_probs - proximal).exp()
    weights = (proximal - behavior).exp()
    objective = torch.minimum(ratios * advantages, ratios.clamp(1 - clip_range, 1 + clip_range) * advantages)
    losses = decoupled_clip(log_probs, proximal, behavior, advantages, clip_range)
    torch.testing.assert_close(losses, -weights * objective)
    torch.testing.assert_close(gradient(losses, log_probs), gradient(-weights * objective, log_probs))


@pytest.mark.parametrize("clip_range", [0.0, 1e6, math.inf])
def test_without_a_clip_the_proximal_policy_has_no_say(clip_range):
    log_probs, proximal, behavior, advantages = random_batch()
    losses = [decoupled_clip(log_probs, p, behavior, advantages, clip_range) for p in (proximal, proximal - 3)]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(losses[0], -advantages * (log_probs - behavior).exp())
    torch.testing.assert_close(*[gradient(loss, log_probs) for loss in losses])


def test_with_a_clip_the_proximal_policy_has_a_say():
    log_probs, proximal, behavior, advantages = random_batch()
    losses = [decoupled_clip(log_probs, p, behavior, advantages, 0.2) for p in (proximal, proximal - 3)]
    assert not torch.allclose(*losses)


def test_without_a_penalty_the_proximal_policy_has_no_say():
    log_probs, proximal, behavior, advantages = random_batch()
    penalized, alone = (unclipped_surrogate(log_probs, behavior, advantages) for _ in range(2))
    penalized = penalized + 0.0 * squared_log_ratio(log_probs, proximal - 500)
    assert torch.equal(penalized, alone)
    assert torch.equal(gradient(penalized, log_probs), gradient(alone, log_probs))


@pytest.mark.parametrize("advantage", [-2.0, 3.0])
@pytest.mark.parametrize("loss", [unclipped_surrogate, lambda *batch: decoupled_clip(batch[0], *batch, 0.2)])
def test_a_capped_ratio_counts_a_hundred_times_and_keeps_its_gradient(loss, advantage):
    log_probs = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    behavior, advantages = torch.tensor([-12.0]).double(), torch.tensor([advantage]).double()
    losses = loss(log_probs, behavior, advantages)
    torch.testing.assert_close(losses, -100 * advantages)
    torch.testing.assert_close(gradient(losses, log_probs), -100 * advantages)


@pytest.mark.usefixtures("in_float64")
def test_the_cap_leaves_smaller_ratios_alone():
    log_probs, behavior = torch.tensor([-1.0, -1.0, -9.0]), torch.tensor([-1.0, -5.0, -1.0])
    assert torch.equal(capped_behavior(log_probs, behavior), behavior)
    torch.testing.assert_close(capped_behavior(log_probs, behavior, cap=math.e), torch.tensor([-1.0, -2.0, -1.0]))


@pytest.mark.usefixtures("in_float64")
def test_the_cap_keeps_a_decoupled_loss_finite():
    log_probs, behavior = torch.tensor([0.0, 0.0]), torch.tensor([-500.0, -500.0])
    losses = decoupled_clip(log_probs, log_probs, behavior, torch.tensor([1.0, -1.0]), 0.2)
    torch.testing.assert_close(losses, torch.tensor([-100.0, 100.0]))


def test_the_penalty_is_half_the_squared_log_ratio():
    log_probs = torch.tensor([-1.0, -3.0], requires_grad=True)
    losses = squared_log_ratio(log_probs, torch.tensor([-3.0, -2.0]))
    assert losses.tolist() == [2.0, 0.5]
    assert gradient(losses, log_probs).tolist() == [2.0, -1.0]


def test_value_error_is_squared_and_not_halved():
    assert value_error(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 2.5])).tolist() == [4.0, 0.25]


@pytest.mark.parametrize(
    ("value", "loss", "slope"),
    [(0.5, 2.25, -3.0), (1.25, 0.5625, -1.5), (1.5, 0.25, -1.0), (2.0, 0.25, 0.0), (3.0, 1.0, 2.0)],
)
def test_clipped_value_error_takes_the_worse_of_two_values(value, loss, slope):
    """Old value 1, return 2, clip 0.5: going from 1.5 on to 2 gains nothing, and overshooting still costs."""
    values = torch.tensor([value], requires_grad=True)
    losses = clipped_value_error(values, torch.tensor([1.0]), torch.tensor([2.0]), 0.5)
    assert losses.item() == loss
    assert gradient(losses, values).item() == slope


def test_on_its_own_data_the_ess_loss_has_the_gradient_of_reinforce():
    log_probs, _, _, advantages = random_batch()
    behavior = log_probs.detach().clone()
    ess = effective_sample_size(log_probs - behavior)
    losses = ess_policy_loss(log_probs, behavior, advantages, ess)
    torch.testing.assert_close(gradient(losses, log_probs), -advantages)
    torch.testing.assert_close(losses, -log_probs * advantages)


@pytest.mark.usefixtures("in_float64")
def test_ess_caps_large_ratios_and_keeps_small_ones_whatever_the_sign_of_the_advantage():
    log_probs = torch.tensor([-1.0, -1.0, -1.0, -1.0], requires_grad=True)
    behavior = log_probs.detach() - torch.tensor([0.25, 0.25, 3.0, 3.0]).log()
    losses = ess_policy_loss(log_probs, behavior, torch.tensor([2.0, -2.0, 2.0, -2.0]), torch.tensor(0.5))
    torch.testing.assert_close(gradient(losses, log_probs), torch.tensor([-0.5, 0.5, -1.0, 1.0]))


def test_the_ess_loss_of_a_huge_ratio_does_not_overflow():
    losses = ess_policy_loss(torch.tensor([-1.0]), torch.tensor([-501.0]), torch.tensor([2.0]), torch.tensor(0.5))
    assert losses.item() == 1.0


@pytest.mark.parametrize("log_ratio", [-30.0, -12.0, -5.0, 0.0, 5.0, 12.0])
def test_k3_pulls_towards_the_behavior_policy_however_far_away(log_ratio):
    log_ratios = torch.tensor([log_ratio], dtype=torch.float64, requires_grad=True)
    losses = k3_penalty(log_ratios)
    slope = gradient(losses, log_ratios).item()
    beyond = max(0.0, -log_ratio - 10)
    assert losses.item() == pytest.approx(log_ratio + math.exp(min(-log_ratio, 10)) * (1 + beyond) - 1)
    assert slope == pytest.approx(1 - math.exp(min(-log_ratio, 10)))
    assert (slope > 0) - (slope < 0) == (log_ratio > 0) - (log_ratio < 0)


def test_k3_does_not_overflow():
    log_ratios = torch.tensor([-500.0], requires_grad=True)
    losses = k3_penalty(log_ratios)
    assert torch.isfinite(losses).all() and gradient(losses, log_ratios).item() == pytest.approx(
        -math.exp(10), rel=1e-3
    )


@given(st.floats(-9, 50))
def test_the_gradient_of_k3_is_the_slope_of_its_value(log_ratio):
    log_ratios = torch.tensor([log_ratio], dtype=torch.float64, requires_grad=True)
    exact = log_ratios + torch.exp(-log_ratios) - 1
    torch.testing.assert_close(gradient(k3_penalty(log_ratios), log_ratios), gradient(exact, log_ratios))
    assert k3_penalty(log_ratios).item() >= 0.0
