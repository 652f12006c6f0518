"""Signals: one number that says how fast the policy moves. They only look; nothing they do changes training."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from swell.errors import ConfigError, DivergedError
from swell.types import PolicyView, WatchedPolicy


def behavioral_divergence(actions_before: Tensor, actions_after: Tensor) -> float:
    """The share of states whose greedy action changed, also known as policy churn (arXiv 2206.00730).

    δ = (1/M) Σ_i 1[π_θ'(s_i) ≠ π_θ(s_i)]

    Actions are [M], or [M, K] with K components, of which one is enough.
    """
    changed = actions_before != actions_after
    return changed.flatten(1).any(dim=1).float().mean().item() if changed.dim() > 1 else changed.float().mean().item()


def continuous_divergence(
    actions_before: Tensor, actions_after: Tensor, deviations_before: Tensor, tolerance: float
) -> float:
    """The share of states whose greedy action moved by more than `tolerance` standard deviations; all [M, d].

        δ = (1/M) Σ_i 1[ sqrt( (1/d) Σ_j ((a'_ij − a_ij) / σ_ij)² ) > tolerance ]

    Continuous actions always change a little, so the question is whether the change can be told from the policy's own
    noise: hence σ as the unit. The root mean square over dimensions does not grow with their number, so one
    tolerance serves all envs. Greedy actions are clipped to the action space: a mean beyond its edge that moves
    further changes nothing that the env can see. Where σ is fixed and nothing is clipped, a move by r in every state
    is a KL divergence of d r² / 2.
    """
    move = ((actions_after - actions_before) / deviations_before).square().mean(dim=1).sqrt()
    return (move > tolerance).float().mean().item()


def log_effective_sample_size(log_ratios: Tensor) -> Tensor:
    """log e of the ratios ρ = exp(l), a scalar without gradient in [−log N, 0].

        log e = 2·log Σρ − log Σρ² − log N

    A common factor of all ratios cancels: e says how unequal they are, not how far from 1.
    """
    detached = log_ratios.detach().flatten()
    shifted = detached - detached.max()  # e ignores the scale, and near 0 logsumexp loses no digits
    log_count = math.log(detached.shape[0])
    log_ess = 2.0 * shifted.logsumexp(0) - (2.0 * shifted).logsumexp(0) - log_count
    return log_ess.clamp(-log_count, 0.0)


def effective_sample_size(log_ratios: Tensor) -> Tensor:
    """e = (Σρ)² / (N·Σρ²) of the ratios ρ = exp(l), a scalar without gradient in [1/N, 1].

    Small pools over-estimate it, so take it over the whole batch rather than over each minibatch.
    """
    return log_effective_sample_size(log_ratios).exp()


def ratio_sums(log_ratios: Tensor) -> Tensor:
    """(Σρ, Σρ², N) of the ratios ρ = exp(l): all that e needs, and it adds up over micro-batches and processes.

    In float64, where l up to 350 does not overflow.
    """
    ratios = widest(log_ratios.detach().flatten()).exp()
    return torch.stack([ratios.sum(), ratios.square().sum(), torch.full_like(ratios.sum(), ratios.numel())])


def widest(values: Tensor) -> Tensor:
    """In float64, or in float32 on Apple's devices, which have no more."""
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def effective_sample_size_of(sums: Tensor) -> Tensor:
    """e = (Σρ)² / (N·Σρ²) from `ratio_sums`, in [1/N, 1]; 1 of no ratios at all."""
    total, squares, number = sums
    if number == 0:
        return torch.ones_like(total)
    if not torch.isfinite(sums).all():
        raise DivergedError("importance ratios are not finite: the policy has left the one that sampled")
    return (total.square() / (number * squares)).clamp(1.0 / number.item(), 1.0)


@torch.no_grad()
def kl_divergence(before: PolicyView, after: PolicyView) -> float:
    """The mean over states of the exact KL(π_θ' ‖ π_θ): new policy first."""
    if after.kind is None or before.parameters is None or after.parameters is None:
        raise ConfigError("the KL divergence needs a stochastic policy; take BehavioralDivergence")
    divergences = after.kind.distribution(after.parameters).kl(after.kind.distribution(before.parameters))
    return divergences.clamp(min=0.0).mean().item()  # equal policies may differ from 0 by rounding


class PolicyChange:
    """A signal that compares what the policy says before and after an update, on the same states.

    The base of those below, and of signals of your own: give it a `name` and a `compare`.
    """

    name = "policy_change"

    def compare(self, before: PolicyView, after: PolicyView) -> float:
        """How far the policy has moved."""
        raise NotImplementedError

    def watch(self, policy: WatchedPolicy) -> Callable[[], float]:
        before = policy.view()
        return lambda: self.compare(before, policy.view())

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class BehavioralDivergence(PolicyChange):
    """The share of states whose greedy action changed; a continuous action by more than `tolerance` deviations."""

    name = "behavioral_divergence"

    def __init__(self, tolerance: float = 0.1) -> None:
        self._tolerance = tolerance

    def compare(self, before: PolicyView, after: PolicyView) -> float:
        if after.kind is None or not after.kind.is_continuous or before.parameters is None:
            return behavioral_divergence(before.greedy_actions, after.greedy_actions)
        _, log_deviations = before.parameters.chunk(2, dim=1)
        actions = before.greedy_actions.flatten(1), after.greedy_actions.flatten(1)
        return continuous_divergence(*actions, log_deviations.exp(), self._tolerance)


class KLDivergence(PolicyChange):
    """The mean over states of the exact KL(π_θ' ‖ π_θ): new policy first."""

    name = "kl_divergence"

    def compare(self, before: PolicyView, after: PolicyView) -> float:
        return kl_divergence(before, after)


class EffectiveSampleSize(PolicyChange):
    """The share of the actions taken that still counts under the new policy, from 1/M to 1.

        e = (Σ_i w_i)² / (M Σ_i w_i²),   w_i = π_θ'(a_i|s_i) / π_θ(a_i|s_i)

    A policy that did not move reads 1, so calm is the larger threshold here.
    """

    name = "effective_sample_size"

    def compare(self, before: PolicyView, after: PolicyView) -> float:
        if before.log_probs is None or after.log_probs is None:
            raise ConfigError("the effective sample size needs the log-probabilities of the actions that were taken")
        return effective_sample_size(after.log_probs - before.log_probs).item()


SIGNALS: dict[str, type[PolicyChange]] = {
    signal.name: signal for signal in (KLDivergence, BehavioralDivergence, EffectiveSampleSize)
}
"""Those that compare a policy before and after an update, by name."""
