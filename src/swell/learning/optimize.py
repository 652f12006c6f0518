"""Gradient steps: minibatches, micro-batches, clipping, and the report of an update. Knows nothing of any algorithm."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.optim.adam import adam

from swell import ranks
from swell.errors import DivergedError, is_out_of_memory
from swell.types import BatchPlan


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


class FlatAdam:
    """Adam (arXiv 1412.6980), or RAdam (arXiv 1908.03265) if `rectified`, on the vector of `flat_parameters`.

        m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   m̂ = m / (1 − β₁ᵗ),   v̂ = v / (1 − β₂ᵗ)
        Adam:    θ ← θ − α m̂ / (√v̂ + ε)
        RAdam:   ρ_∞ = 2 / (1 − β₂) − 1,   ρ_t = ρ_∞ − 2 t β₂ᵗ / (1 − β₂ᵗ)
                 r_t = √( (ρ_t − 4)(ρ_t − 2) ρ_∞ / ((ρ_∞ − 4)(ρ_∞ − 2) ρ_t) )
                 θ ← θ − α r_t m̂ √(1 − β₂ᵗ) / (√v + ε)   where ρ_t > 5,   else   θ − α m̂

    The same steps as torch's optimizers but for rounding. With one vector there is nothing to group, look up or loop
    over, which is most of what those spend on a small network.
    """

    def __init__(
        self,
        flat: nn.Parameter,
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        *,
        rectified: bool = False,
    ) -> None:
        self.flat = flat
        self.learning_rate = learning_rate
        self.betas = betas
        self.epsilon = epsilon
        self._rectified = rectified
        self.mean, self.square = torch.zeros_like(flat), torch.zeros_like(flat)
        self._steps = torch.zeros((), device=flat.device)
        self._is_fused = flat.device.type in ("cpu", "cuda")

    @property
    def gradient(self) -> Tensor:
        gradient = self.flat.grad
        assert gradient is not None  # flat_parameters made it
        return gradient

    @property
    def rectified(self) -> bool:
        return self._rectified

    @property
    def steps(self) -> float:
        """How many it has taken; a kernel that takes some says so."""
        return self._steps.item()

    @steps.setter
    def steps(self, count: float) -> None:
        self._steps.fill_(count)

    @torch.no_grad()
    def step(self) -> None:
        rate, epsilon = self._rectified_numbers() if self._rectified else (self.learning_rate, self.epsilon)
        adam(
            [self.flat],
            [self.gradient],
            [self.mean],
            [self.square],
            [],
            [self._steps],
            fused=self._is_fused,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=rate,
            weight_decay=0.0,
            eps=epsilon,
            maximize=False,
        )
        if rate == 0.0 and self.learning_rate != 0.0:
            correction = 1.0 - self.betas[0] ** self._steps.item()
            self.flat.add_(self.mean, alpha=-self.learning_rate / correction)

    def _rectified_numbers(self) -> tuple[float, float]:
        """The rate and the epsilon with which Adam does what RAdam asks for; a rate of 0 where it asks for momentum."""
        beta2 = self.betas[1]
        step = self._steps.item() + 1
        correction = 1.0 - beta2**step
        longest = 2.0 / (1.0 - beta2) - 1.0
        length = longest - 2.0 * step * beta2**step / correction
        if length <= 5.0:
            return 0.0, self.epsilon
        rectification = math.sqrt(
            (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
        )
        return self.learning_rate * rectification, self.epsilon / math.sqrt(correction)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps, "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._steps.copy_(state["steps"])
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])


def shuffled_minibatches(indices: Tensor, minibatches: int, epochs: int, generator: Generator) -> Iterator[Tensor]:
    """Each epoch deals all indices, in a new order, into minibatches whose sizes differ by at most one.

    A single minibatch keeps their order, since it holds them all.
    """
    for _ in range(epochs):
        (order,) = shuffled(indices, minibatches, 1, generator)
        yield from order.tensor_split(min(minibatches, indices.shape[0]))


def shuffled(indices: Tensor, minibatches: int, epochs: int, generator: Generator) -> Tensor:
    """[epochs, B] the indices in the order in which each epoch deals them out."""
    if minibatches == 1:
        return indices.repeat(epochs, 1)
    orders = torch.empty((epochs, indices.shape[0]), dtype=torch.long)
    for order in orders:
        torch.randperm(order.shape[0], generator=generator, out=order)
    return indices[orders.to(indices.device)]


AddGradient = Callable[[Tensor, int], float]
"""From indices of samples and the size of the minibatch they belong to: adds ∂(their losses / that size) to `.grad` and
returns their share of the minibatch's mean loss."""


def by_autograd(sample_losses: Callable[[Tensor], Tensor]) -> AddGradient:
    """The gradient of any losses, from indices [B] to losses [B]."""

    def add_gradient(chosen: Tensor, minibatch_size: int) -> float:
        loss = sample_losses(chosen).sum() / minibatch_size
        loss.backward()
        return loss.item()

    return add_gradient


def accumulate_gradients(
    add_gradient: AddGradient, rows: Tensor, micro_batch_size: int, gradient: Tensor, minibatch_size: int | None = None
) -> tuple[float, int]:
    """Adds the gradient of the minibatch's mean loss to `.grad`, one micro-batch of activations at a time.

    `rows` are this process's part of a minibatch of `minibatch_size`, by default all of it. `gradient` is where it is
    added up: zero, and zero again before each new try. Where memory runs out, micro-batches are halved. Returns this
    part of the loss and the size of a micro-batch that there was room for.
    """
    count = rows.shape[0]
    size = minibatch_size or count
    if count == 0:
        return 0.0, micro_batch_size
    while True:
        try:
            if count <= micro_batch_size:
                return add_gradient(rows, size), micro_batch_size
            return sum(add_gradient(part, size) for part in rows.split(micro_batch_size)), micro_batch_size
        except (MemoryError, RuntimeError) as error:
            used = min(micro_batch_size, count)
            if used == 1 or not is_out_of_memory(error):
                raise
        # Not in the handler: there, the error still holds the tensors of the calls that failed.
        micro_batch_size = (used + 1) // 2
        gradient.zero_()
        if gradient.device.type == "cuda":
            torch.cuda.empty_cache()


def summed_over_processes(gradient: Tensor, loss: float) -> float:
    """Adds up the parts of a gradient, in place, and of its loss that the processes of a run have; in one message."""
    if ranks.is_alone():
        return loss
    message = ranks.add_up(torch.cat([gradient, gradient.new_tensor([loss])]))
    gradient.copy_(message[:-1])
    return message[-1].item()


def clipped_step(optimizer: FlatAdam, max_gradient_norm: float | None, loss: float) -> float:
    """One optimizer step with the gradient norm clipped, if at all; returns the norm before clipping.

    A loss or gradient that is not finite stops the run here, before it reaches the weights. The gradient is zero
    afterwards.
    """
    gradient = optimizer.gradient
    norm = torch.linalg.vector_norm(gradient).item()
    require_finite(loss, norm)
    if max_gradient_norm is not None and norm > max_gradient_norm:
        gradient.mul_(max_gradient_norm / norm)
    optimizer.step()
    gradient.zero_()
    return norm


def require_finite(loss: float, norm: float) -> None:
    if not (abs(loss) < math.inf and norm < math.inf):
        raise DivergedError(f"the loss is {loss} and its gradient norm {norm}: no finite update is possible")


class StepTaken(NamedTuple):
    """One gradient step: its loss and the norm of its gradient before clipping."""

    loss: float
    gradient_norm: float


def update_report(steps: Sequence[StepTaken], samples: int, plan: BatchPlan) -> dict[str, float]:
    """The metrics that every update has."""
    minibatches = min(plan.minibatches, samples)
    return {
        "loss": sum(step.loss for step in steps) / len(steps),
        "gradient_norm": sum(step.gradient_norm for step in steps) / len(steps),
        "batch_size": samples,
        "minibatches": minibatches,
        "minibatch_size": math.ceil(samples / minibatches),
        "epochs": math.ceil(len(steps) / minibatches),
        "gradient_steps_per_sample": len(steps) / samples,
    }


class SampleMeans:
    """Means of per-sample numbers over an update; reads nothing back from the device before the end."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, **samples: Tensor) -> None:
        """Each tensor holds one number per sample."""
        for name, values in samples.items():
            total = values.detach().sum()
            self._sums[name] = self._sums[name] + total if name in self._sums else total
            self._counts[name] = self._counts.get(name, 0) + values.numel()

    def mean(self, name: str) -> float:
        return self.means()[name]

    def means(self) -> dict[str, float]:
        """Over the samples of all processes; one of them may have had none."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        own = {name: (total.item(), self._counts[name]) for name, total in self._sums.items()}
        for tallies in ranks.everyones(own):
            for name, (total, count) in tallies.items():
                sums[name] = sums.get(name, 0.0) + total
                counts[name] = counts.get(name, 0) + count
        return {name: total / counts[name] for name, total in sums.items()}
