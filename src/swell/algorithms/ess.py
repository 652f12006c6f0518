"""The ESS-adaptive objective: how far to trust a batch is read off the batch itself (arXiv 2605.12380)."""

from functools import partial

import torch
from torch import Tensor

from swell.batch.signals import effective_sample_size
from swell.config.learners import ESSSettings
from swell.learning.advantages import normalized
from swell.learning.losses import distance, ess_policy_loss, k3_penalty
from swell.learning.optimize import SampleMeans, StepTaken, by_autograd, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch
from swell.learning.policy_learner import PolicyLearner
from swell.ranks import joined
from swell.types import BatchPlan, GradientProbe, Rollout


class ESSPPO(PolicyLearner[ESSSettings]):
    """No clip range: weights are capped at the effective sample size e, and 1 − e pulls towards the policy that acted.

        L = −sg(min(ρ, e)) · log π · A + (1 − e) · KL(π ‖ π_b)

    On its own data e is 1 and this is REINFORCE with advantages; the further π has gone, the smaller the steps and the
    stronger the pull.
    """

    settings_kind = ESSSettings

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """`plan.epochs` passes over the rollout, fewer if the policy has moved further than `target_kl`."""
        batch = self.prepare(rollout)
        now = self.configure(batch, plan, progress)
        norm, target_kl = self.settings.advantage_norm, self.settings.target_kl
        advantages = batch.rescaled_advantages(normalized if norm == "batch" else torch.clone)
        # log ρ of every transition as last seen: pooling over the batch then costs no pass of its own.
        pool = batch.recent_log_probs - batch.behavior_log_probs
        steps: list[StepTaken] = []
        means = SampleMeans()
        for _ in range(plan.epochs):
            means = SampleMeans()  # of this pass alone
            for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, 1, self.shuffle):
                if norm == "minibatch":
                    batch.normalize_minibatch(minibatch, advantages)
                trust = self._trust(batch, minibatch, pool)
                means.add(effective_sample_size=trust.unsqueeze(0))
                add_gradient = by_autograd(partial(self.losses, batch, advantages, trust, pool, means))
                steps.append(self.gradient_step(add_gradient, minibatch, batch.shares))
            if target_kl is not None and means.mean("approx_kl") > target_kl:
                break
        self.observe(batch)
        ratios = joined(pool[batch.own]).exp()
        # What e cannot tell: it is 1 for equal ratios whatever their size, so the size is reported beside it.
        spread = {"ratio_mean": ratios.mean().item(), "ratio_deviation": ratios.std(correction=0).item()}
        return {**self.report(batch, plan, now, steps, means.means()), **spread}

    def losses(
        self, batch: PolicyBatch, advantages: Tensor, trust: Tensor, pool: Tensor, means: SampleMeans, chosen: Tensor
    ) -> Tensor:
        """The objective, [B] for the chosen rows; `pool` learns their ratios."""
        settings, kind = self.settings, self.space.kind
        parameters, values = self.model(batch.states[chosen])
        distribution = kind.distribution(parameters)
        log_probs, entropy = distribution.log_prob(batch.actions[chosen]), distribution.entropy()
        behavior = batch.behavior_log_probs[chosen]
        log_ratios = log_probs - behavior
        if settings.ess_penalty == "exact":
            penalty = distribution.kl(kind.distribution(batch.parameters[chosen]))
        else:
            penalty = k3_penalty(log_ratios)
        policy_loss = ess_policy_loss(log_probs, behavior, advantages[chosen], trust)
        value_loss = batch.value_losses(values, chosen, settings.value_clip_range)
        pool[chosen] = log_ratios.detach()
        means.add(
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

    @torch.no_grad()
    def _trust(self, batch: PolicyBatch, minibatch: Tensor, pool: Tensor) -> Tensor:
        """e of the ratios in scope."""
        if self.settings.ess_scope == "batch":
            return effective_sample_size(joined(pool[batch.own]))
        rows = batch.shares.own(minibatch)
        distribution = self.space.kind.distribution(self.parameters(batch.states[rows]))
        log_ratios = distribution.log_prob(batch.actions[rows]) - batch.behavior_log_probs[rows]
        return effective_sample_size(joined(log_ratios))

    def gradient_probe(self, rollout: Rollout) -> GradientProbe:
        """The losses of the first gradient step, for whoever wants their gradient; changes nothing."""
        batch = self.peek(rollout)
        rescale = torch.clone if self.settings.advantage_norm == "none" else normalized
        advantages = batch.rescaled_advantages(rescale)
        pool = batch.recent_log_probs - batch.behavior_log_probs
        trust = effective_sample_size(joined(pool[batch.own]))
        losses = partial(self.losses, batch, advantages, trust, pool, SampleMeans())
        return batch.indices, batch.shares.own_losses(losses), self.trained
