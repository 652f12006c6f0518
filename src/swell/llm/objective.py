"""The ESS objective on tokens (arXiv 2605.12380): tensors in, tensors out; no trainer, no language model.

Shapes are [B, T] for B completions of at most T tokens. `mask` is 1 on tokens that were sampled and count. `log_probs`
are ℓ of the policy in training; `behavior_log_probs` ℓ_b of whatever sampled the token, NaN where nobody knows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from swell.batch.signals import effective_sample_size_of, ratio_sums
from swell.learning.losses import ess_policy_loss, k3_penalty


@dataclass(frozen=True)
class Ratios:
    """log ρ = ℓ − ℓ_b of a batch of tokens, and where it is known. Carries the gradient of ℓ."""

    log_ratios: Tensor
    """0 where ℓ_b is not known or the token does not count: such a token is taken as fresh."""
    known: Tensor
    """True on the tokens that enter the pool and are pulled."""

    def sums(self) -> Tensor:
        """(Σρ, Σρ², N) over the known tokens; add those of all micro-batches and processes before taking e."""
        return ratio_sums(self.log_ratios[self.known])

    def pull(self) -> Tensor:
        """Σ k3(log ρ) over the known tokens: towards the policy that sampled, whatever the size of ρ."""
        return k3_penalty(self.log_ratios[self.known]).sum()

    def num_capped(self, ess: float) -> Tensor:
        """How many known tokens have a ratio above e."""
        return (self.log_ratios.detach()[self.known].exp() > ess).sum()


def token_ratios(log_probs: Tensor, behavior_log_probs: Tensor | None, mask: Tensor) -> Ratios:
    """The ratios of a batch; without behaviour log-probs nothing is known and every ratio is 1."""
    if behavior_log_probs is None:
        return Ratios(torch.zeros_like(log_probs), torch.zeros_like(mask, dtype=torch.bool))
    known = mask.bool() & ~behavior_log_probs.isnan()
    # The inner `where` keeps NaN and infinities of tokens that do not count out of the gradient too.
    behavior = torch.where(known, behavior_log_probs, log_probs.detach())
    return Ratios(torch.where(known, log_probs - behavior, torch.zeros_like(log_probs)), known)


def ess_token_losses(
    log_probs: Tensor,
    behavior_log_probs: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    ess: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The objective of every token, [B, T], 0 where the mask is; and e.

        −sg(min(ρ, e))·ℓ·A + (1 − e)·k3(log ρ),   e = (Σρ)² / (N·Σρ²)

    `advantages` are [B] or [B, T]. e is that of these tokens unless it is given: sum `token_ratios(…).sums()` over the
    micro-batches and processes of an optimizer step, and hand in `effective_sample_size_of` the sum.
    """
    ratios = token_ratios(log_probs, behavior_log_probs, mask)
    trust = effective_sample_size_of(ratios.sums()) if ess is None else ess
    trust = trust.to(log_probs.dtype)
    per_token = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
    counted = mask.bool()
    safe_log_probs = torch.where(counted, log_probs, torch.zeros_like(log_probs))
    behavior = safe_log_probs.detach() - ratios.log_ratios.detach()
    losses = ess_policy_loss(safe_log_probs, behavior, per_token, trust) + (1.0 - trust) * k3_penalty(ratios.log_ratios)
    return torch.where(counted, losses, torch.zeros_like(losses)), trust


def verl_policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
    *,
    aggregate: Callable[..., Tensor] | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The ESS objective with the signature of veRL's policy losses. To use it there:

        from functools import partial
        from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss
        register_policy_loss("ess")(partial(verl_policy_loss, aggregate=agg_loss))

    `aggregate` is veRL's `agg_loss`, which knows its modes and ranks; without it this is the mean over tokens. e is
    that of one micro-batch on one rank, since veRL shows a loss no more. `rollout_is_weights` must be None: with them
    every token would be weighted twice.
    """
    if rollout_is_weights is not None:
        raise ValueError("the ESS objective weighs tokens itself; set rollout_is to null in veRL's rollout correction")
    losses, trust = ess_token_losses(log_prob, old_log_prob, advantages, response_mask)
    if aggregate is not None:
        batch_info = getattr(config, "global_batch_info", {})
        loss = aggregate(loss_mat=losses, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **batch_info)
    elif loss_agg_mode == "token-mean":
        loss = losses.sum() / response_mask.sum().clamp(min=1)
    else:
        raise ValueError(f"loss_agg_mode {loss_agg_mode!r} needs aggregate=agg_loss, veRL's own")
    ratios = token_ratios(log_prob, old_log_prob, response_mask)
    number = ratios.known.sum().clamp(min=1)
    return loss, {
        "actor/ess": trust.item(),
        "actor/ess_ratio_mean": (ratios.sums()[0] / number).item(),
        "actor/ess_capped_share": (ratios.num_capped(trust.item()) / number).item(),
        "actor/ess_pull": ((1.0 - trust) * ratios.pull().detach() / number).item(),
    }
