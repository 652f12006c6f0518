"""Gradient steps: minibatches, micro-batches, clipping. Knows nothing of any algorithm."""

from collections.abc import Callable, Iterator

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from swell.errors import DivergedError


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


def clipped_step(optimizer: Optimizer, max_gradient_norm: float, loss: float) -> float:
    """One optimizer step with the global gradient norm clipped; returns the norm before clipping.

    A loss or gradient that is not finite stops the run here, before it reaches the weights.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_gradient_norm).item()
    if not (abs(loss) < float("inf") and norm < float("inf")):
        raise DivergedError(f"the loss is {loss} and its gradient norm {norm}: no finite update is possible")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
