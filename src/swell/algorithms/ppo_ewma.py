"""PPO-EWMA: the policy to stay near is an average of recent weights, not the policy that acted (arXiv 2110.00641)."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from swell.batch.hyperparameters import Hyperparameters
from swell.learning.actor import Actor
from swell.learning.advantages import AdvantageMoments, normalized
from swell.learning.optimize import by_autograd, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch, Preparation
from swell.learning.policy_learner import PolicyGradient, StepSettings
from swell.learning.proximal_policy import DecoupledSettings, averaged, decoupled_objective
from swell.learning.tally import Tally
from swell.learning.weight_average import WeightAverage
from swell.types import BatchPlan, Rollout, SampleLosses


class PPOEWMA(PolicyGradient[DecoupledSettings]):
    """PPO whose trust region does not depend on how much was collected at once."""

    def __init__(
        self,
        actor: Actor,
        preparation: Preparation,
        hyperparameters: Hyperparameters,
        step_settings: StepSettings,
        settings: DecoupledSettings,
        seed: int,
    ) -> None:
        super().__init__(actor, preparation, hyperparameters, step_settings, settings, seed)
        self.average = WeightAverage(self.network)
        self.moments = AdvantageMoments()

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """`plan.epochs` passes; the average takes in the weights after each gradient step."""
        batch = self.preparation.batch(rollout)
        tuned = self.configure(batch, plan, progress)
        advantages = batch.advantages
        if self.settings.normalize_advantages:
            advantages = batch.rescaled_advantages(partial(self.moments.normalize, decay=tuned.advantage_decay))
        tally = Tally()
        sample_losses = self._objective(batch, advantages, tally)
        steps = []
        for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, plan.epochs, self.shuffle):
            steps.append(self.gradient_step(by_autograd(sample_losses), minibatch))
            self.average.step(self.network, tuned.proximal_decay)
        self.actor.observe(batch.states, batch.indices)
        self.average.copy_buffers(self.network)
        numbers = {"proximal_decay": tuned.proximal_decay, "advantage_decay": tuned.advantage_decay}
        return {**self.report(batch, plan, tuned, steps), **numbers, **tally.means()}

    def gradient_probe(self, rollout: Rollout) -> tuple[Tensor, SampleLosses]:
        """The losses of the first gradient step, for whoever wants their gradient; changes nothing."""
        batch = self.preparation.peek(rollout)
        rescale = normalized if self.settings.normalize_advantages else torch.clone
        return batch.indices, self._objective(batch, batch.rescaled_advantages(rescale), Tally())

    def _objective(self, batch: PolicyBatch, advantages: Tensor, tally: Tally) -> SampleLosses:
        proximal = averaged(self.average, self.actor)
        return decoupled_objective(
            self.actor, batch, advantages, batch.behavior_log_probs, proximal, self.settings, tally
        )

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
