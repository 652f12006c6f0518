"""The ESS-adaptive objective: how far to trust a batch is read off the batch itself (arXiv 2605.12380)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from swell.learning.advantages import normalized
from swell.learning.losses import effective_sample_size, ess_policy_loss, k3_penalty
from swell.learning.optimize import by_autograd, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch
from swell.learning.policy_learner import PolicyGradient, distance
from swell.learning.tally import Tally
from swell.types import BatchPlan, Rollout, SampleLosses

ESSScope = Literal["minibatch", "batch"]
ESSPenalty = Literal["exact", "k3"]


@dataclass(frozen=True)
class ESSSettings:
    """The numbers of the objective; RunConfig explains each."""

    scope: ESSScope
    penalty: ESSPenalty
    value_clip_range: float | None
    value_coefficient: float
    entropy_coefficient: float
    advantage_norm: Literal["none", "minibatch", "batch"]
    target_kl: float | None


class ESSPPO(PolicyGradient[ESSSettings]):
    """No clip range: weights are capped at the effective sample size e, and 1 − e pulls towards the policy that acted.

        L = −sg(min(ρ, e)) · log π · A + (1 − e) · KL(π ‖ π_b)

    On its own data e is 1 and this is REINFORCE with advantages; the further π has gone, the smaller the steps and the
    stronger the pull.
    """

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """`plan.epochs` passes over the rollout, fewer if the policy has moved further than `target_kl`."""
        batch = self.preparation.batch(rollout)
        tuned = self.configure(batch, plan, progress)
        rescale = normalized if self.settings.advantage_norm == "batch" else torch.clone
        advantages = batch.rescaled_advantages(rescale)
        # log ρ of every transition as last seen: pooling over the batch then costs no pass of its own.
        pool = batch.recent_log_probs - batch.behavior_log_probs
        steps, tally = [], Tally()
        for _ in range(plan.epochs):
            tally = Tally()
            for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, 1, self.shuffle):
                if self.settings.advantage_norm == "minibatch":
                    advantages[minibatch] = normalized(batch.advantages[minibatch])
                trust = self._trust(batch, minibatch, pool)
                tally.add(effective_sample_size=trust.unsqueeze(0))
                sample_losses = self._objective(batch, advantages, trust, pool, tally)
                steps.append(self.gradient_step(by_autograd(sample_losses), minibatch))
            if self.settings.target_kl is not None and tally.mean("approx_kl") > self.settings.target_kl:
                break
        self.actor.observe(batch.states, batch.indices)
        return {**self.report(batch, plan, tuned, steps), **tally.means(), **_spread(pool[batch.indices])}

    def gradient_probe(self, rollout: Rollout) -> tuple[Tensor, SampleLosses]:
        """The losses of the first gradient step, for whoever wants their gradient; changes nothing."""
        batch = self.preparation.peek(rollout)
        rescale = torch.clone if self.settings.advantage_norm == "none" else normalized
        advantages = batch.rescaled_advantages(rescale)
        pool = batch.recent_log_probs - batch.behavior_log_probs
        trust = effective_sample_size(pool[batch.indices])
        return batch.indices, self._objective(batch, advantages, trust, pool, Tally())

    @torch.no_grad()
    def _trust(self, batch: PolicyBatch, minibatch: Tensor, pool: Tensor) -> Tensor:
        """e of the ratios in scope."""
        if self.settings.scope == "batch":
            return effective_sample_size(pool[batch.indices])
        distribution = self.actor.space.kind.distribution(self.actor.parameters(batch.states[minibatch]))
        return effective_sample_size(
            distribution.log_prob(batch.actions[minibatch]) - batch.behavior_log_probs[minibatch]
        )

    def _objective(
        self, batch: PolicyBatch, advantages: Tensor, trust: Tensor, pool: Tensor, tally: Tally
    ) -> SampleLosses:
        settings, kind = self.settings, self.actor.space.kind

        def sample_losses(chosen: Tensor) -> Tensor:
            parameters, values = self.network(batch.states[chosen])
            distribution = kind.distribution(parameters)
            log_probs, entropy = distribution.log_prob(batch.actions[chosen]), distribution.entropy()
            behavior = batch.behavior_log_probs[chosen]
            log_ratios = log_probs - behavior
            if settings.penalty == "exact":
                penalty = distribution.kl(kind.distribution(batch.parameters[chosen]))
            else:
                penalty = k3_penalty(log_ratios)
            policy_loss = ess_policy_loss(log_probs, behavior, advantages[chosen], trust)
            value_loss = batch.value_losses(values, chosen, settings.value_clip_range)
            pool[chosen] = log_ratios.detach()
            tally.add(
                policy_loss=policy_loss,
                value_loss=value_loss,
                entropy=entropy,
                penalty=penalty,
                capped_fraction=(log_ratios.detach().exp() > trust).float(),
                approx_kl=distance(log_probs, behavior, 0.0)["approx_kl"],
            )
            return (
                policy_loss
                + (1.0 - trust) * penalty
                + settings.value_coefficient * value_loss
                - settings.entropy_coefficient * entropy
            )

        return sample_losses


def _spread(log_ratios: Tensor) -> dict[str, float]:
    """What e cannot tell: it is 1 for equal ratios whatever their size, so the size is reported beside it."""
    ratios = log_ratios.exp()
    return {"ratio_mean": ratios.mean().item(), "ratio_deviation": ratios.std(correction=0).item()}
