"""Observations shifted and scaled by the mean and variance of all that were observed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor, nn

from swell.networks.encoders import as_float
from swell.ranks import everyones

EPSILON = 1e-8
CLIP = 10.0
STATISTICS = ("mean", "squared_deviations", "count")
Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True)
class Moments(Generic[Number]):
    """How many values were seen, their mean, and the sum of their squared deviations from it."""

    count: Number
    mean: Number
    squared_deviations: Number


def merged(before: Moments[Number], batch: Moments[Number]) -> Moments[Number]:
    """The moments of both together, by the formula of Chan, Golub and LeVeque.

    n = n_a + n_b,  δ = mean_b − mean_a,  mean = mean_a + δ n_b / n,  M2 = M2_a + M2_b + δ² n_a n_b / n
    """
    count = before.count + batch.count
    delta = batch.mean - before.mean
    share = batch.count * (1.0 / count)
    between = delta * delta * (before.count * batch.count / count)
    squared_deviations = before.squared_deviations + batch.squared_deviations + between
    return Moments(count, before.mean + delta * share, squared_deviations)


class ObservationNormalizer(nn.Module):
    """clip((x − mean) / sqrt(variance + 1e-8), −10, 10) for each element of an observation.

    The statistics move only when `observe` is called, that is between iterations: the policy that acted is the same
    function as the policy that is trained on what it did. Before the first `observe` the mean is 0 and the variance 1,
    so that observations are only clipped. Everything is in the state_dict, and is saved with the model.

    The statistics are float64 and stay on the CPU, because Apple's GPUs have no float64; `forward` reads the float32
    `center` and `scale` made from them, which are wherever the network is.
    """

    mean: Tensor
    squared_deviations: Tensor
    count: Tensor
    center: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(*shape, dtype=torch.float64))
        self.register_buffer("squared_deviations", torch.zeros(*shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("center", torch.zeros(*shape))
        self.register_buffer("scale", torch.ones(*shape))

    def forward(self, observations: Tensor) -> Tensor:
        return ((as_float(observations) - self.center) * self.scale).clamp(-CLIP, CLIP)

    @torch.no_grad()
    def observe(self, observations: Tensor) -> None:
        """Merges a batch [B, *shape] into the statistics, and what other processes of the run give."""
        batch_count = observations.shape[0]
        batch = as_float(observations).to("cpu", torch.float64)
        mean = batch.mean(dim=0)
        own = Moments(torch.tensor(float(batch_count), dtype=torch.float64), mean, (batch - mean).square().sum(dim=0))
        moments = Moments(self.count, self.mean, self.squared_deviations)
        for seen in everyones(own):
            if seen.count > 0:  # of no observations the mean is none
                moments = merged(moments, seen)
        self.count.copy_(moments.count)
        self.mean.copy_(moments.mean)
        self.squared_deviations.copy_(moments.squared_deviations)
        self.center.copy_(self.mean)
        if self.count > 0:
            self.scale.copy_((self.squared_deviations / self.count + EPSILON).rsqrt())

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        statistics = {name: self._buffers.pop(name) for name in STATISTICS}
        try:
            return super()._apply(fn, recurse)
        finally:
            self._buffers.update(statistics)
