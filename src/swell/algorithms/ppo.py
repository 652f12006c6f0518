"""PPO: clipped surrogate, generalized advantages, several epochs per rollout (arXiv 1707.06347)."""

from functools import partial

import torch
from torch import Tensor

from swell.config.learners import PPOSettings
from swell.learning.advantages import normalized
from swell.learning.losses import clipped_surrogate, decoupled_clip, distance
from swell.learning.optimize import AddGradient, SampleMeans, StepTaken, by_autograd, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch
from swell.learning.policy_learner import PolicyLearner
from swell.learning.written_objectives import clipped_policy_gradient
from swell.types import BatchPlan, Rollout, SampleLosses


class PPO(PolicyLearner[PPOSettings]):
    """Proximal policy optimization with the details that make it work (cited in docs/ppo.md)."""

    settings_kind = PPOSettings

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """`plan.epochs` passes over the rollout, fewer if the policy has moved further than `target_kl`."""
        batch = self.prepare(rollout)
        now = self.configure(batch, plan, progress)
        norm, target_kl = self.settings.advantage_norm, self.settings.target_kl
        if norm == "minibatch" and plan.minibatches == 1:
            norm = "batch"
        advantages = batch.rescaled_advantages(normalized if norm == "batch" else torch.clone)
        steps: list[StepTaken] = []
        means = SampleMeans()
        for remaining in reversed(range(plan.epochs)):
            means = SampleMeans()  # of this pass alone
            is_read = remaining == 0 or target_kl is not None
            add_gradient = self._gradient(batch, advantages, means if is_read else None)
            for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, 1, self.shuffle):
                if norm == "minibatch":
                    advantages[minibatch] = normalized(batch.advantages[minibatch])
                steps.append(self.gradient_step(add_gradient, minibatch))
            if target_kl is not None and means.mean("approx_kl") > target_kl:
                break
        self.observe(batch)
        return self.report(batch, plan, now, steps, means)

    def losses(self, batch: PolicyBatch, advantages: Tensor, means: SampleMeans, chosen: Tensor) -> Tensor:
        """The objective: clipped surrogate, squared error of the values, entropy bonus; [B] for the chosen rows."""
        settings = self.settings
        behavior, proximal = batch.anchors(settings.staleness_mode)
        parameters, values = self.network(batch.states[chosen])
        distribution = self.space.kind.distribution(parameters)
        log_probs, entropy = distribution.log_prob(batch.actions[chosen]), distribution.entropy()
        if proximal is behavior:
            policy_loss = clipped_surrogate(log_probs, behavior[chosen], advantages[chosen], settings.clip_range)
        else:
            policy_loss = decoupled_clip(
                log_probs, proximal[chosen], behavior[chosen], advantages[chosen], settings.clip_range
            )
        value_loss = batch.value_losses(values, chosen, settings.value_clip_range)
        away = distance(log_probs, proximal[chosen], settings.clip_range)
        means.add(policy_loss=policy_loss, value_loss=value_loss, entropy=entropy, **away)
        return policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy

    def _gradient(self, batch: PolicyBatch, advantages: Tensor, means: SampleMeans | None) -> AddGradient:
        """That of `losses`: by the kernel for plain networks where it can serve, else by autograd."""
        kernel = clipped_policy_gradient(self._chain, self.space.kind, batch, advantages, self.settings, means)
        return kernel or by_autograd(partial(self.losses, batch, advantages, means or SampleMeans()))

    def gradient_probe(self, rollout: Rollout) -> tuple[Tensor, SampleLosses]:
        """The losses of the first gradient step, for whoever wants their gradient; changes nothing."""
        batch = self.peek(rollout)
        rescale = torch.clone if self.settings.advantage_norm == "none" else normalized
        return batch.indices, partial(self.losses, batch, batch.rescaled_advantages(rescale), SampleMeans())
