"""PPO: clipped surrogate, generalized advantages, several epochs per rollout (arXiv 1707.06347)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from swell.kernels.written_gradients import Tape
from swell.learning.advantages import normalized
from swell.learning.losses import clipped_surrogate, clipped_surrogate_slopes, decoupled_clip
from swell.learning.optimize import AddGradient, by_autograd, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch, StalenessMode
from swell.learning.policy_learner import PolicyGradient, distance
from swell.learning.tally import Tally
from swell.types import BatchPlan, Rollout, SampleLosses

AdvantageNorm = Literal["none", "minibatch", "batch"]


@dataclass(frozen=True)
class PPOSettings:
    """The numbers of the objective; RunConfig explains each."""

    clip_range: float
    value_clip_range: float | None
    value_coefficient: float
    entropy_coefficient: float
    advantage_norm: AdvantageNorm
    target_kl: float | None
    staleness_mode: StalenessMode


class PPO(PolicyGradient[PPOSettings]):
    """Proximal policy optimization with the details that make it work (cited in docs/ppo.md)."""

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """`plan.epochs` passes over the rollout, fewer if the policy has moved further than `target_kl`."""
        batch = self.preparation.batch(rollout)
        tuned = self.configure(batch, plan, progress)
        norm = self.settings.advantage_norm
        if norm == "minibatch" and plan.minibatches == 1:
            norm = "batch"
        advantages = batch.rescaled_advantages(normalized if norm == "batch" else torch.clone)
        steps, tally = [], Tally()
        for remaining in reversed(range(plan.epochs)):
            tally = Tally()
            is_read = remaining == 0 or self.settings.target_kl is not None
            add_gradient = self._add_gradient(batch, advantages, tally if is_read else None)
            for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, 1, self.shuffle):
                if norm == "minibatch":
                    advantages[minibatch] = normalized(batch.advantages[minibatch])
                steps.append(self.gradient_step(add_gradient, minibatch))
            if self.settings.target_kl is not None and tally.mean("approx_kl") > self.settings.target_kl:
                break
        self.actor.observe(batch.states, batch.indices)
        return {**self.report(batch, plan, tuned, steps), **tally.means()}

    def gradient_probe(self, rollout: Rollout) -> tuple[Tensor, SampleLosses]:
        """The losses of the first gradient step, for whoever wants their gradient; changes nothing."""
        batch = self.preparation.peek(rollout)
        rescale = torch.clone if self.settings.advantage_norm == "none" else normalized
        advantages = batch.rescaled_advantages(rescale)
        return batch.indices, self._objective(batch, advantages, Tally())

    def _objective(self, batch: PolicyBatch, advantages: Tensor, tally: Tally) -> SampleLosses:
        settings, kind = self.settings, self.actor.space.kind
        behavior, proximal = batch.anchors(settings.staleness_mode)

        def sample_losses(chosen: Tensor) -> Tensor:
            parameters, values = self.network(batch.states[chosen])
            distribution = kind.distribution(parameters)
            log_probs, entropy = distribution.log_prob(batch.actions[chosen]), distribution.entropy()
            if proximal is behavior:
                policy_loss = clipped_surrogate(log_probs, behavior[chosen], advantages[chosen], settings.clip_range)
            else:
                policy_loss = decoupled_clip(
                    log_probs, proximal[chosen], behavior[chosen], advantages[chosen], settings.clip_range
                )
            value_loss = batch.value_losses(values, chosen, settings.value_clip_range)
            tally.add(
                policy_loss=policy_loss,
                value_loss=value_loss,
                entropy=entropy,
                **distance(log_probs, proximal[chosen], settings.clip_range),
            )
            return policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy

        return sample_losses

    def _add_gradient(self, batch: PolicyBatch, advantages: Tensor, tally: Tally | None) -> AddGradient:
        """The gradient of `_objective`: written out in its usual form, if the network is a chain; else by autograd."""
        settings, chain, kind = self.settings, self.chain, self.actor.space.kind
        behavior, proximal = batch.anchors(settings.staleness_mode)
        if chain is None or proximal is not behavior:
            return by_autograd(self._objective(batch, advantages, tally or Tally()))

        @torch.inference_mode()
        def add_gradient(chosen: Tensor, minibatch_size: int) -> float:
            tape: Tape = []
            parameters, values = chain.forward(batch.states[chosen], tape)
            actions, old_log_probs = batch.actions[chosen], behavior[chosen]
            distribution = kind.distribution(parameters)
            log_probs, entropy = distribution.log_prob(actions), distribution.entropy()
            policy_loss, slopes = clipped_surrogate_slopes(
                log_probs, old_log_probs, advantages[chosen], settings.clip_range
            )
            parameter_slopes = slopes.unsqueeze(1) * distribution.score(actions)
            if settings.entropy_coefficient:
                parameter_slopes.sub_(distribution.entropy_slopes(), alpha=settings.entropy_coefficient)
            value_loss, value_slopes = batch.value_loss_slopes(values, chosen, settings.value_clip_range)
            value_slopes.mul_(settings.value_coefficient / minibatch_size)
            chain.backward(parameter_slopes.div_(minibatch_size), value_slopes, tape)
            if tally is not None:
                away = distance(log_probs, old_log_probs, settings.clip_range)
                tally.add(policy_loss=policy_loss, value_loss=value_loss, entropy=entropy, **away)
            losses = policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy
            return losses.sum().item() / minibatch_size

        return add_gradient
