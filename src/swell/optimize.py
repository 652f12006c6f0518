"""Gradient steps: minibatches, micro-batches, clipping. Knows nothing of any algorithm."""

import math
from collections.abc import Callable, Iterator

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
