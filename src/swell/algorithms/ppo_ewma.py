"""PPO-EWMA: the policy to stay near is an average of recent weights, not the policy that acted (arXiv 2110.00641)."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from swell.config.learners import PPOEWMASettings
from swell.learning.advantages import AdvantageMoments, normalized
from swell.learning.optimize import SampleMeans, by_autograd, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch
from swell.learning.policy_learner import PolicyLearner
from swell.learning.proximal_policy import WeightAverage, averaged_log_probs, decoupled_losses, moment_normalized
from swell.types import BatchPlan, GradientProbe, Rollout, SampleLosses


class PPOEWMA(PolicyLearner[PPOEWMASettings]):
    """PPO whose trust region does not depend on how much was collected at once."""

    settings_kind = PPOEWMASettings

    def start(self) -> None:
        self.average = WeightAverage(self.network, self.kernel_of)
        self.moments = AdvantageMoments()

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """`plan.epochs` passes; the average takes in the weights after each gradient step."""
        batch = self.prepare(rollout)
        now = self.configure(batch, plan, progress)
        advantages = moment_normalized(batch, self.settings, self.moments, now.advantage_decay)
        means = SampleMeans()
        add_gradient = by_autograd(self._losses(batch, advantages, means))
        steps = []
        for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, plan.epochs, self.shuffle):
            steps.append(self.gradient_step(add_gradient, minibatch, batch.shares))
            self.average.step(self.network, now.proximal_decay)
        self.observe(batch)
        self.average.copy_buffers(self.network)
        numbers = {"proximal_decay": now.proximal_decay, "advantage_decay": now.advantage_decay}
        return {**self.report(batch, plan, now, steps, means.means()), **numbers}

    def gradient_probe(self, rollout: Rollout) -> GradientProbe:
        """The losses of the first gradient step, for whoever wants their gradient; changes nothing."""
        batch = self.peek(rollout)
        rescale = torch.clone if self.settings.advantage_norm == "none" else normalized
        losses = self._losses(batch, batch.rescaled_advantages(rescale), SampleMeans())
        return batch.indices, batch.shares.own_losses(losses), self.trained

    def _losses(self, batch: PolicyBatch, advantages: Tensor, means: SampleMeans) -> SampleLosses:
        kind, behavior = self.space.kind, batch.behavior_log_probs
        proximal = partial(averaged_log_probs, self.average, kind)
        return partial(decoupled_losses, self.model, kind, batch, advantages, behavior, proximal, self.settings, means)

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "average": self.average.state_dict(),
            "moments": self.moments.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.average.load_state_dict(state["average"])
        self.moments.load_state_dict(state["moments"])
