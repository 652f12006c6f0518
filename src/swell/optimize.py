"""Gradient steps: minibatches, micro-batches, clipping. Knows nothing of any algorithm."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from swell.errors import DivergedError


def flat_parameters(network: nn.Module) -> nn.Parameter:
    """One vector that holds all parameters of a network, which become views of it, as do their gradients.

    An optimizer of this vector steps once instead of once per layer: for small networks that is most of its time.
    Call it after the network has moved to its device, and never set a gradient to None afterwards.
    """
    parameters = list(network.parameters())
    flat = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    flat.grad = torch.zeros_like(flat)
    start = 0
    for parameter in parameters:
        # As the parameter lies in memory, so that channels-last convolutions stay so.
        layout = (parameter.shape, parameter.stride(), start)
        view = flat.detach().as_strided(*layout)
        view.copy_(parameter.detach())
        parameter.data = view
        parameter.grad = flat.grad.as_strided(*layout)
        start += parameter.numel()
    return flat


class RectifiedAdam(torch.optim.Adam):
    """RAdam (arXiv 1908.03265), each step of which is one of torch's fused Adam with another rate and epsilon.

        ρ_∞ = 2 / (1 − β₂) − 1,   ρ_t = ρ_∞ − 2 t β₂ᵗ / (1 − β₂ᵗ)
        r_t = √( (ρ_t − 4)(ρ_t − 2) ρ_∞ / ((ρ_∞ − 4)(ρ_∞ − 2) ρ_t) )
        θ  ←  θ − α r_t m̂ √(1 − β₂ᵗ) / (√v + ε)   where ρ_t > 5,   else   θ − α m̂

    Equal to torch.optim.RAdam but for rounding, and several times as fast.
    """

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        wanted = [(group["lr"], group["eps"]) for group in self.param_groups]
        for group in self.param_groups:
            group["lr"], group["eps"] = self._rectified(group)
        super().step()
        for group, (rate, epsilon) in zip(self.param_groups, wanted, strict=True):
            is_unrectified = group["lr"] == 0.0 and rate != 0.0
            group["lr"], group["eps"] = rate, epsilon
            if is_unrectified:
                self._momentum_step(group)

    def _rectified(self, group: dict[str, Any]) -> tuple[float, float]:
        """The rate and the epsilon with which Adam does what RAdam asks for; a rate of 0 where it asks for momentum."""
        beta2 = group["betas"][1]
        step = self._steps(group) + 1
        correction = 1.0 - beta2**step
        longest = 2.0 / (1.0 - beta2) - 1.0
        length = longest - 2.0 * step * beta2**step / correction
        if length <= 5.0:
            return 0.0, group["eps"]
        rectification = math.sqrt(
            (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
        )
        return group["lr"] * rectification, group["eps"] / math.sqrt(correction)

    @torch.no_grad()
    def _momentum_step(self, group: dict[str, Any]) -> None:
        correction = 1.0 - group["betas"][0] ** self._steps(group)
        for parameter in group["params"]:
            parameter.add_(self.state[parameter]["exp_avg"], alpha=-group["lr"] / correction)

    def _steps(self, group: dict[str, Any]) -> int:
        state = self.state[group["params"][0]]
        return int(state["step"]) if state else 0


def shuffled_minibatches(indices: Tensor, minibatches: int, epochs: int, generator: Generator) -> Iterator[Tensor]:
    """Each epoch deals all indices, in a new order, into minibatches whose sizes differ by at most one."""
    count = indices.shape[0]
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).to(indices.device)
        yield from indices[order].tensor_split(min(minibatches, count))


def accumulate_gradients(sample_losses: Callable[[Tensor], Tensor], minibatch: Tensor, micro_batch_size: int) -> float:
    """Adds the gradient of the minibatch's mean loss to `.grad`, one micro-batch of activations at a time."""
    total = 0.0
    for micro_batch in minibatch.split(micro_batch_size):
        loss = sample_losses(micro_batch).sum() / minibatch.shape[0]
        loss.backward()
        total += loss.item()
    return total


def clipped_step(optimizer: Optimizer, max_gradient_norm: float | None, loss: float) -> float:
    """One optimizer step with the global gradient norm clipped, if at all; returns the norm before clipping.

    A loss or gradient that is not finite stops the run here, before it reaches the weights.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_gradient_norm or math.inf).item()
    if not (abs(loss) < float("inf") and norm < float("inf")):
        raise DivergedError(f"the loss is {loss} and its gradient norm {norm}: no finite update is possible")
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return norm


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def set_betas(optimizer: Optimizer, betas: tuple[float, float]) -> None:
    for group in optimizer.param_groups:
        group["betas"] = betas
