"""How far an update moved a language model, read off the tokens that it had sampled before.

A reading depends on more than the policy: on the learning rate and on how many completions the update averaged over.
`squared_step` and `corrected` take out what of this can be derived.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from swell.batch.noise_scale import LARGEST_NOISE_SCALE
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
    """How noisy the gradients of updates are, and how noisy those were that Adam remembers.

        |G|² = (B |g_B|² − b |g_b|²) / (B − b),   tr Σ = (|g_b|² − |g_B|²) / (1/b − 1/B),   B_noise = tr Σ / |G|²

    from the gradient of an update's first micro-batch, of b completions, and of all B (McCandlish et al. 2018, arXiv
    1812.06162, appendix A.1). Each term is averaged over updates, since their ratio is biased.
    """

    def __init__(self, averaging: float = 0.95) -> None:
        self._averaging = averaging
        self._noise = self._signal = 0.0
        self._seen = False
        self._remembered = 0.0  # 1/B over the updates that Adam's second moment remembers, weighted as there
        self._memory = 0.0  # the sum of those weights

    def observe(self, small: float, small_norm2: float, large: float, large_norm2: float) -> None:
        """Takes in |g|² at two batch sizes; nothing can be told from one."""
        if large <= small:
            return
        signal = (large * large_norm2 - small * small_norm2) / (large - small)
        noise = (small_norm2 - large_norm2) / (1.0 / small - 1.0 / large)
        self._noise = self._averaging * self._noise + (1.0 - self._averaging) * noise
        self._signal = self._averaging * self._signal + (1.0 - self._averaging) * signal
        self._seen = True

    def remember(self, batch: float, beta2: float) -> None:
        """An update of so many completions went into Adam's second moment."""
        self._remembered = beta2 * self._remembered + (1.0 - beta2) / batch
        self._memory = beta2 * self._memory + (1.0 - beta2)

    @property
    def scale(self) -> float:
        """B_noise, in completions: 0 before anything was seen and where no noise is left; bounded."""
        if not self._seen or self._noise <= 0.0:
            return 0.0
        return self._noise / max(self._signal, self._noise / LARGEST_NOISE_SCALE)

    def factor(self, batch: float, reference: float, momentum: float, beta2: float | None) -> float:
        """What brings the squared step of an update of `batch` completions to that of `reference` ones.

        `beta2` is that of Adam's second moment; None for an optimizer that has none.
        """
        remembered, at_reference = (None, None) if beta2 is None else (self._remembered / self._memory, 1.0 / reference)
        return squared_step(self.scale, 1.0 / reference, at_reference, momentum) / squared_step(
            self.scale, 1.0 / batch, remembered, momentum
        )

    def state_dict(self) -> dict[str, float]:
        return {name: float(value) for name, value in vars(self).items()}

    def load_state_dict(self, state: dict[str, float]) -> None:
        vars(self).update(state)


def squared_step(noise_scale: float, inverse_batch: float, remembered: float | None, momentum: float) -> float:
    """How long the step of an update of 1 / `inverse_batch` completions is, squared, up to a constant.

        |Δ|² ∝ (1 + c B_noise / B) / (1 + B_noise ⟨1/B⟩),   c = (1 − β₁) / (1 + β₁)

    Above the line what momentum leaves of the gradient, of whose noise it averages all but the share c away. Below it
    Adam's second moment, with the noise of the updates that it remembers; None for an optimizer that has none. So
    under Adam a larger batch makes *longer* steps: less of a step is noise that cancels in the next.
    """
    remaining = (1.0 - momentum) / (1.0 + momentum)
    numerator = 1.0 + remaining * noise_scale * inverse_batch
    return numerator if remembered is None else numerator / (1.0 + noise_scale * remembered)


def corrected(reading: float, signal: str, factor: float) -> float:
    """The reading of a squared step `factor` times as large.

    A KL divergence goes with the square of the step, as does the lost share 1 − e of an effective sample size; the
    share of greedy tokens that changed goes with the step itself.
    """
    if signal == "effective_sample_size":
        return max(0.0, 1.0 - (1.0 - reading) * factor)
    return reading * (math.sqrt(factor) if signal == "behavioral_divergence" else factor)
