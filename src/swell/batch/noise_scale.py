"""The gradient noise scale (McCandlish et al. 2018, arXiv 1812.06162): how large a batch a gradient step can use."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Generator, Tensor, nn

from swell.ranks import add_up
from swell.types import SampleLosses, WatchedPolicy

LARGEST_NOISE_SCALE = 1e9
"""What is read where the gradient has no signal: its noise scale is infinite, which JSON cannot hold."""


def noise_and_signal(gradients: Iterable[Tensor], microbatch_size: int) -> tuple[float, float]:
    """Unbiased estimates of tr Σ, the variance of one sample's gradient, and of |G|², the true gradient squared.

        ḡ = (1/m) Σ_i g_i,   tr Σ̂ = b/(m − 1) Σ_i ‖g_i − ḡ‖²,   |G|²̂ = ‖ḡ‖² − tr Σ̂ / (m b)

    g_i are the flat mean gradients of m ≥ 2 independent microbatches of b samples. They may come from an iterator:
    one at a time is looked at and only their mean is kept. The second estimate can be negative.
    """
    mean, scatter, count = torch.zeros(()), 0.0, 0
    for gradient in gradients:
        count += 1
        difference = gradient - mean
        mean = mean + difference / count
        # By steps, since Σ‖g_i‖² − m‖ḡ‖² would lose a small noise in the rounding of two large sums.
        scatter += difference.square().sum().item() * (count - 1) / count
    noise = microbatch_size * scatter / (count - 1)
    return noise, mean.square().sum().item() - noise / (count * microbatch_size)


def noise_scale(noise: float, signal: float) -> float:
    """B_noise = tr Σ / |G|², in samples: the batch at which noise and signal weigh the same.

    A signal that is zero or estimated below zero means that no batch is large enough. The public release of adaptive
    batch scaling reads it as 0 instead, and answers the noisiest gradients with its smallest batch.
    """
    return noise / signal if noise < LARGEST_NOISE_SCALE * signal else LARGEST_NOISE_SCALE


class GradientNoiseScale:
    """The noise scale of the loss about to be trained on, at the weights before the update.

    The rollout's transitions are dealt at random into microbatches, since slices of time are not independent samples.
    What all of one rollout has in common still counts as signal: this is the noise of drawing a minibatch from the
    rollout, not that of collecting the rollout. The two terms are averaged over readings, each for itself, as their
    ratio is biased and heavy-tailed:

        N ← β N + (1 − β) tr Σ̂,   S ← β S + (1 − β) |G|²̂,   reading = N / S

    Both begin at 0; the factor 1 − βⁿ that would correct for it is the same above and below, and cancels.
    """

    name = "gradient_noise_scale"

    def __init__(
        self, microbatches: int = 16, averaging: float = 0.9, micro_batch_size: int = 1024, seed: int = 0
    ) -> None:
        self._microbatches = microbatches
        self._averaging = averaging
        self._micro_batch_size = micro_batch_size
        self._generator = Generator().manual_seed(seed)
        self._noise = 0.0
        self._signal = 0.0

    def watch(self, policy: WatchedPolicy) -> Callable[[], float | None]:
        """The averaged noise scale in transitions, at most `LARGEST_NOISE_SCALE`; None of fewer than two of them."""
        found = self._noise_and_signal(*policy.gradient_probe())

        def reading() -> float | None:
            if found is None:
                return None
            noise, signal = found
            self._noise = self._averaging * self._noise + (1.0 - self._averaging) * noise
            self._signal = self._averaging * self._signal + (1.0 - self._averaging) * signal
            return noise_scale(self._noise, self._signal)

        return reading

    def _noise_and_signal(
        self, indices: Tensor, sample_losses: SampleLosses, parameters: Sequence[nn.Parameter]
    ) -> tuple[float, float] | None:
        size = max(1, indices.shape[0] // self._microbatches)
        count = min(self._microbatches, indices.shape[0])
        if count < 2:
            return None
        order = torch.randperm(indices.shape[0], generator=self._generator)[: count * size].to(indices.device)
        gradients = self._gradients(indices[order].split(size), sample_losses, parameters)
        return noise_and_signal(gradients, size)

    def _gradients(
        self, microbatches: Iterable[Tensor], sample_losses: SampleLosses, parameters: Sequence[nn.Parameter]
    ) -> Iterator[Tensor]:
        for microbatch in microbatches:
            parts = microbatch.split(self._micro_batch_size)
            losses = (sample_losses(part).sum() / microbatch.shape[0] for part in parts)
            yield add_up(reduce(torch.add, (flat_gradient(loss, parameters) for loss in losses)))

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self._generator.get_state(), "noise": self._noise, "signal": self._signal}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"])
        self._noise = float(state["noise"])
        self._signal = float(state["signal"])


def flat_gradient(loss: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """The gradient as one vector, without touching `.grad`; parameters that the loss leaves out count as zeros."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in gradients])
