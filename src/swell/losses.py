"""Losses: tensors in, one number per sample out."""

from torch import Tensor


def q_regression(q_values: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
    """(Q(s, a) − G)², [B]; `q_values` is [B, A]."""
    chosen = q_values.gather(1, actions.unsqueeze(1)).squeeze(1)
    return (chosen - targets).square()
