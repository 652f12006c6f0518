"""Losses: tensors in, one number per sample out.

Names of the policy losses, all [B]: `log_probs` ℓ = log π(a) of the policy in training, `behavior_log_probs` ℓ_b of the
policy that acted, `proximal_log_probs` ℓ_p of the policy to stay near; ℓ_b, ℓ_p and `advantages` A carry no gradient.
"""

import math

import torch
from torch import Tensor

IMPORTANCE_RATIO_CAP = 100.0
"""Largest π/π_b that a decoupled loss believes (arXiv 2110.00641, appendix B)."""
MAX_K3_EXPONENT = 10.0
"""Beyond it the pull of the k3 penalty grows no further."""


def q_regression(q_values: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
    """(Q(s, a) − G)², [B]; `q_values` is [B, A]."""
    chosen = q_values.gather(1, actions.unsqueeze(1)).squeeze(1)
    return (chosen - targets).square()


def clipped_surrogate(log_probs: Tensor, behavior_log_probs: Tensor, advantages: Tensor, clip_range: float) -> Tensor:
    """−min(ρA, clip(ρ, 1 − ε, 1 + ε)A), ρ = exp(ℓ − ℓ_b): PPO (arXiv 1707.06347). ε of 0 or ∞ does not clip."""
    log_ratios = log_probs - behavior_log_probs
    unclipped = -advantages * log_ratios.exp()
    if not clips(clip_range):
        return unclipped
    return torch.maximum(unclipped, -advantages * clipped_log_ratios(log_ratios, clip_range).exp())


def capped_behavior(log_probs: Tensor, behavior_log_probs: Tensor, cap: float = IMPORTANCE_RATIO_CAP) -> Tensor:
    """ℓ_b' = max(ℓ_b, sg(ℓ) − ln cap): behaviour log-probs that keep exp(ℓ − ℓ_b') at or below `cap`.

    Unlike a clamp of the ratio, which would kill the gradient, a capped sample keeps cap·∇ℓ: truncated importance
    sampling.
    """
    return torch.maximum(behavior_log_probs, log_probs.detach() - math.log(cap))


def unclipped_surrogate(log_probs: Tensor, behavior_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """−A·exp(ℓ − ℓ_b'), with ℓ_b' from `capped_behavior`: the surrogate that a penalty keeps in place."""
    return -advantages * (log_probs - capped_behavior(log_probs, behavior_log_probs)).exp()


def decoupled_clip(
    log_probs: Tensor, proximal_log_probs: Tensor, behavior_log_probs: Tensor, advantages: Tensor, clip_range: float
) -> Tensor:
    """PPO's clip around the proximal policy, weighted for data of the behaviour policy (arXiv 2110.00641, §3).

        −(π_p/π_b)·min(rA, clip(r, 1 − ε, 1 + ε)A),   r = exp(ℓ − ℓ_p)

    with ℓ_b' from `capped_behavior` in place of ℓ_b. ε of 0 or ∞ does not clip, and then ℓ_p has no say. Where
    ℓ_p = ℓ_b and no ratio is above the cap this is `clipped_surrogate`.
    """
    if not clips(clip_range):
        return unclipped_surrogate(log_probs, behavior_log_probs, advantages)
    believed = capped_behavior(log_probs, behavior_log_probs)
    unclipped = -advantages * (log_probs - believed).exp()
    # One exponential of a sum: the product of two could overflow on the way to an ordinary number.
    clipped_log = clipped_log_ratios(log_probs - proximal_log_probs, clip_range) + (proximal_log_probs - believed)
    return torch.maximum(unclipped, -advantages * clipped_log.exp())


def squared_log_ratio(log_probs: Tensor, proximal_log_probs: Tensor) -> Tensor:
    """½(ℓ − ℓ_p)²: the penalty that Hilton et al. coded for the KL, on the sampled action and not weighted."""
    return 0.5 * (log_probs - proximal_log_probs).square()


def value_error(values: Tensor, returns: Tensor) -> Tensor:
    """(V − R)²."""
    return (values - returns).square()


def clipped_value_error(values: Tensor, old_values: Tensor, returns: Tensor, clip_range: float) -> Tensor:
    """max of (V − R)² and (V_c − R)², V_c = V_old + clip(V − V_old, −ε, ε): no reward for going past the clip."""
    clipped = old_values + (values - old_values).clamp(-clip_range, clip_range)
    return torch.maximum((values - returns).square(), (clipped - returns).square())


def ess_policy_loss(log_probs: Tensor, behavior_log_probs: Tensor, advantages: Tensor, ess: Tensor) -> Tensor:
    """−sg(min(ρ, e))·ℓ·A, ρ = exp(ℓ − ℓ_b) and e the effective sample size (arXiv 2605.12380, eq. 12).

    On the policy's own data e = 1 and every weight is 1: REINFORCE.
    """
    weights = torch.minimum((log_probs - behavior_log_probs).detach().exp(), ess)
    return -weights * log_probs * advantages


def k3_penalty(log_ratios: Tensor) -> Tensor:
    """k3(l) = l + exp(−l) − 1 of l = ℓ − ℓ_b, where exp goes on in a straight line beyond 10.

    Never negative, and zero where the policies agree. Its mean is KL(π ‖ π_b) only on actions of π itself, so on stored
    data do not call it a KL.
    """
    exponents = -log_ratios
    # Clamping the exponent alone would leave only the slope +1 of l itself for a very small ratio: a push away from the
    # behaviour policy. With the line, the slope 1 − exp(min(−l, 10)) always points back, and nothing overflows.
    beyond = torch.relu(exponents - MAX_K3_EXPONENT)
    return torch.expm1(exponents.clamp(max=MAX_K3_EXPONENT)) + math.exp(MAX_K3_EXPONENT) * beyond - exponents


def clips(clip_range: float) -> bool:
    """Whether there is a clip at all."""
    return 0.0 < clip_range < math.inf


def clipped_log_ratios(log_ratios: Tensor, clip_range: float) -> Tensor:
    """log clip(r, 1 − ε, 1 + ε) from log r; from ε = 1 on there is no lower bound."""
    lowest = math.log1p(-clip_range) if clip_range < 1.0 else -math.inf
    return log_ratios.clamp(lowest, math.log1p(clip_range))


@torch.no_grad()
def distance(log_probs: Tensor, proximal_log_probs: Tensor, clip_range: float) -> dict[str, Tensor]:
    """How far the policy has gone from the one it should stay near, per sample; a clip range of 0 clips nothing."""
    log_ratios = log_probs - proximal_log_probs
    ratios = log_ratios.exp()
    approx_kl = (ratios - 1.0) - log_ratios
    if clip_range == 0.0:
        return {"approx_kl": approx_kl}
    return {"approx_kl": approx_kl, "clip_fraction": ((ratios - 1.0).abs() > clip_range).float()}
