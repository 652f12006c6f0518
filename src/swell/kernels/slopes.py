"""Losses with their slopes: what autograd would find, written out. See written_gradients.py."""

import torch
from torch import Tensor

from swell.learning.losses import clipped_log_ratios, clipped_value_error, clips


def q_regression_slopes(q_values: Tensor, actions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The losses of `q_regression`, [B], and their slopes ∂loss/∂Q, [B, A]: 2 (Q(s, a) − G) at a, zero elsewhere."""
    chosen = actions.unsqueeze(1)
    errors = q_values.gather(1, chosen).squeeze(1).sub_(targets)
    slopes = torch.zeros_like(q_values).scatter_(1, chosen, errors.mul(2.0).unsqueeze_(1))
    return errors.square_(), slopes


def clipped_surrogate_slopes(
    log_probs: Tensor, behavior_log_probs: Tensor, advantages: Tensor, clip_range: float
) -> tuple[Tensor, Tensor]:
    """The losses of `clipped_surrogate` and their slopes ∂loss/∂ℓ: −ρA, or 0 where the clip holds the loss."""
    log_ratios = log_probs - behavior_log_probs
    unclipped = log_ratios.exp().mul_(advantages).neg_()
    if not clips(clip_range):
        return unclipped, unclipped
    clipped = clipped_log_ratios(log_ratios, clip_range).exp_().mul_(advantages).neg_()
    return torch.maximum(unclipped, clipped), unclipped * (unclipped >= clipped)


def value_error_slopes(
    values: Tensor, returns: Tensor, old_values: Tensor | None, clip_range: float
) -> tuple[Tensor, Tensor]:
    """The losses of `value_error`, or of `clipped_value_error` given old values, and their slopes ∂loss/∂V."""
    errors = values - returns
    losses, slopes = errors.square(), errors.mul_(2.0)
    if old_values is None:
        return losses, slopes
    clipped = clipped_value_error(values, old_values, returns, clip_range)
    # Inside the range V_c is V but for rounding, so comparing the two losses would drop some of these slopes.
    is_inside = (values - old_values).abs_() <= clip_range
    return clipped, slopes * (is_inside | (losses >= clipped))
