"""PPO: clipped surrogate, generalized advantages, several epochs per rollout (arXiv 1707.06347)."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swell.config.learners import PPOSettings
from swell.learning.advantages import normalized
from swell.learning.losses import clipped_surrogate, decoupled_clip, distance
from swell.learning.optimize import SampleMeans, StepTaken, by_autograd, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch
from swell.learning.policy_learner import PolicyLearner
from swell.ranks import is_alone
from swell.types import BatchPlan, GradientProbe, Rollout

if TYPE_CHECKING:
    from swell.learning.fused import Crew


class PPO(PolicyLearner[PPOSettings]):
    """Proximal policy optimization with the details that make it work (cited in docs/ppo.md)."""

    settings_kind = PPOSettings

    def start(self) -> None:
        self._crew: Crew | None = None

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """`plan.epochs` passes over the rollout, fewer if the policy has moved further than `target_kl`."""
        batch = self.prepare(rollout)
        now = self.configure(batch, plan, progress)
        norm, target_kl = self.settings.advantage_norm, self.settings.target_kl
        if norm == "minibatch" and plan.minibatches == 1 and self.kernel is None:
            norm = "batch"  # once, instead of in every epoch; a kernel does it in passing
        advantages = batch.rescaled_advantages(normalized) if norm == "batch" else batch.advantages.clone()
        steps: list[StepTaken] = []
        means: dict[str, float] = {}
        passes = self._make_passes(batch, advantages, norm == "minibatch", plan.minibatches)
        at_once = plan.epochs if target_kl is None else 1
        for _ in range(0, plan.epochs, at_once):
            taken, means = passes(at_once)
            steps += taken
            if target_kl is not None and means["approx_kl"] > target_kl:
                break
        self.observe(batch)
        return self.report(batch, plan, now, steps, means)

    def _make_passes(
        self, batch: PolicyBatch, advantages: Tensor, normalises: bool, minibatches: int
    ) -> Callable[[int], tuple[list[StepTaken], dict[str, float]]]:
        """Makes so many passes over the batch: the steps taken, and means over the samples of the last one."""
        behavior, proximal = batch.anchors(self.settings.staleness_mode)
        # Several processes add up their gradients at each step, which one call for all of them cannot.
        if self.kernel is not None and proximal is behavior and is_alone():
            return self._compiled_passes(batch, behavior, advantages, normalises, minibatches)

        def passes(epochs: int) -> tuple[list[StepTaken], dict[str, float]]:
            means, steps = SampleMeans(), list[StepTaken]()
            for _ in range(epochs):
                means = SampleMeans()
                add_gradient = by_autograd(partial(self.losses, batch, advantages, means))
                for minibatch in shuffled_minibatches(batch.indices, minibatches, 1, self.shuffle):
                    if normalises:
                        batch.normalize_minibatch(minibatch, advantages)
                    steps.append(self.gradient_step(add_gradient, minibatch, batch.shares))
            return steps, means.means()

        return passes

    def _compiled_passes(
        self, batch: PolicyBatch, old_log_probs: Tensor, advantages: Tensor, normalises: bool, minibatches: int
    ) -> Callable[[int], tuple[list[StepTaken], dict[str, float]]]:
        """The same in one call, where one old policy has both roles."""
        from swell.learning.fused import ClippedPolicyPasses, Crew

        assert self.kernel is not None
        if self._crew is None:
            part = self.kernel.value_part if self.kernel.is_dual else self.kernel.both
            self._crew = Crew(part, self.threads)
        optimizer = (self._crew, self.optimizer, self.settings.max_gradient_norm, self.shuffle)
        data = (batch, old_log_probs, advantages, normalises)
        fused = ClippedPolicyPasses(self.kernel, *data, self.settings, *optimizer)
        return lambda epochs: (fused.run(batch.indices, minibatches, epochs, self), fused.means)

    def losses(self, batch: PolicyBatch, advantages: Tensor, means: SampleMeans, chosen: Tensor) -> Tensor:
        """The objective: clipped surrogate, squared error of the values, entropy bonus; [B] for the chosen rows."""
        settings = self.settings
        behavior, proximal = batch.anchors(settings.staleness_mode)
        parameters, values = self.model(batch.states[chosen])
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

    def gradient_probe(self, rollout: Rollout) -> GradientProbe:
        """The losses of the first gradient step, for whoever wants their gradient; changes nothing."""
        batch = self.peek(rollout)
        rescale = torch.clone if self.settings.advantage_norm == "none" else normalized
        losses = partial(self.losses, batch, batch.rescaled_advantages(rescale), SampleMeans())
        return batch.indices, batch.shares.own_losses(losses), self.trained
