"""How far an update moved a language model, read off the tokens that it had sampled before.

A reading depends on more than the policy: on the learning rate and on how many completions the update averaged over.
`correction` takes out what of this can be derived.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from swell.batch.signals import effective_sample_size_of, ratio_sums, widest
from swell.learning.losses import k3_penalty


@dataclass(frozen=True)
class TokenSignal:
    """One number from what the policy said of the same N tokens before and after an update, both [N].

    `sums` add up over processes; `reading` is taken of their sum. What is looked at are log-probabilities of the
    sampled tokens, or the greedy tokens in their place.
    """

    sums: Callable[[Tensor, Tensor], Tensor]
    reading: Callable[[Tensor], float]
    of_greedy_tokens: bool = False


def _kl_sums(before: Tensor, after: Tensor) -> Tensor:
    """Σ exp(l) − 1 − l with l = ℓ' − ℓ: its mean over tokens of the old policy is KL(π_old ‖ π_new), never negative."""
    return _sum_and_count(k3_penalty(before - after))


def _changed_sums(before: Tensor, after: Tensor) -> Tensor:
    return _sum_and_count(before != after)


def _sum_and_count(values: Tensor) -> Tensor:
    total = widest(values).sum()
    return torch.stack([total, torch.full_like(total, values.numel())])


def _mean(sums: Tensor) -> float:
    return (sums[0] / sums[1]).item()


TOKEN_SIGNALS = {
    "kl_divergence": TokenSignal(_kl_sums, _mean),
    "effective_sample_size": TokenSignal(
        lambda before, after: ratio_sums(after - before), lambda sums: effective_sample_size_of(sums).item()
    ),
    "behavioral_divergence": TokenSignal(_changed_sums, _mean, of_greedy_tokens=True),
}


class UpdateNoise:
    """The gradient noise scale in completions, from the gradient of an update's first micro-batch and of all of them.

        |G|² = (B |g_B|² − b |g_b|²) / (B − b),   tr Σ = (|g_b|² − |g_B|²) / (1/b − 1/B),   B_noise = tr Σ / |G|²

    (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1.) Each term is averaged over updates, since their ratio is biased.
    """

    def __init__(self, averaging: float = 0.95) -> None:
        self._averaging = averaging
        self._noise = self._signal = 0.0
        self._seen = False

    def observe(self, small: float, small_norm2: float, large: float, large_norm2: float) -> None:
        """Takes in |g|² at two batch sizes; nothing can be told from one."""
        if large <= small:
            return
        signal = (large * large_norm2 - small * small_norm2) / (large - small)
        noise = (small_norm2 - large_norm2) / (1.0 / small - 1.0 / large)
        self._noise = self._averaging * self._noise + (1.0 - self._averaging) * noise
        self._signal = self._averaging * self._signal + (1.0 - self._averaging) * signal
        self._seen = True

    @property
    def scale(self) -> float:
        """B_noise: 0 before anything was seen and where no noise is left, infinite where no signal is."""
        if not self._seen or self._noise <= 0.0:
            return 0.0
        return self._noise / self._signal if self._signal > 0.0 else math.inf

    def state_dict(self) -> dict[str, float | bool]:
        return {"noise": self._noise, "signal": self._signal, "seen": self._seen}

    def load_state_dict(self, state: dict[str, float | bool]) -> None:
        self._noise, self._signal, self._seen = float(state["noise"]), float(state["signal"]), bool(state["seen"])


def batch_factor(noise_scale: float, batch: float, reference: float, momentum: float) -> float:
    """How many times the squared step at `reference` completions per update is that at `batch`.

        |Δ|² ∝ |G|² + c tr Σ / B,   c = (1 − β₁) / (1 + β₁)

    c is what a moving average of gradients leaves of their noise; without momentum it is 1. Adam also divides by the
    root of its second moment, whose memory of 1 / (1 − β₂) updates is taken as long: that part cancels.
    """
    remaining = (1.0 - momentum) / (1.0 + momentum)
    if math.isinf(noise_scale):
        return batch / reference
    return (1.0 + remaining * noise_scale / reference) / (1.0 + remaining * noise_scale / batch)


def corrected(reading: float, signal: str, factor: float) -> float:
    """The reading of a squared step `factor` times as large.

    A KL divergence goes with the square of the step, as does the lost share 1 − e of an effective sample size; the
    share of greedy tokens that changed goes with the step itself.
    """
    if signal == "effective_sample_size":
        return max(0.0, 1.0 - (1.0 - reading) * factor)
    return reading * (math.sqrt(factor) if signal == "behavioral_divergence" else factor)
