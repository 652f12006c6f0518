"""PPO-EWMA: the policy to stay near is an average of recent weights, not the policy that acted (arXiv 2110.00641)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from swell.actor import Actor
from swell.advantages import AdvantageMoments, normalized
from swell.hyperparameters import Hyperparameters
from swell.losses import decoupled_clip, squared_log_ratio
from swell.optimize import shuffled_minibatches
from swell.policy_batch import PolicyBatch, Preparation
from swell.policy_gradient import PolicyGradient, StepSettings, distance
from swell.tally import Tally
from swell.types import BatchPlan, Rollout, SampleLosses
from swell.weight_average import WeightAverage


@dataclass(frozen=True)
class PPOEWMASettings:
    """The numbers of the objective; RunConfig explains each."""

    clip_range: float
    kl_penalty: float
    value_clip_range: float | None
    value_coefficient: float
    entropy_coefficient: float
    normalize_advantages: bool


class PPOEWMA(PolicyGradient):
    """PPO whose trust region does not depend on how much was collected at once."""

    def __init__(
        self,
        actor: Actor,
        preparation: Preparation,
        hyperparameters: Hyperparameters,
        step_settings: StepSettings,
        settings: PPOEWMASettings,
        seed: int,
    ) -> None:
        super().__init__(actor, preparation, hyperparameters, step_settings, seed)
        self.settings = settings
        self.average = WeightAverage(self.network)
        self.moments = AdvantageMoments()

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """`plan.epochs` passes; the average takes in the weights after each gradient step."""
        batch = self.preparation.batch(rollout)
        tuned = self.configure(batch, plan, progress)
        advantages = batch.advantages.clone()
        if self.settings.normalize_advantages:
            advantages[batch.indices] = self.moments.normalize(batch.advantages[batch.indices], tuned.advantage_decay)
        tally = Tally()
        sample_losses = self._objective(batch, advantages, tally)
        steps = []
        for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, plan.epochs, self.shuffle):
            steps.append(self.gradient_step(sample_losses, minibatch))
            self.average.step(self.network, tuned.proximal_decay)
        self.actor.observe(batch.states[batch.indices])
        self.average.copy_buffers(self.network)
        numbers = {"proximal_decay": tuned.proximal_decay, "advantage_decay": tuned.advantage_decay}
        return {**self.report(batch, plan, tuned, steps), **numbers, **tally.means()}

    def gradient_probe(self, rollout: Rollout) -> tuple[Tensor, SampleLosses]:
        """The losses of the first gradient step, for whoever wants their gradient; changes nothing."""
        batch = self.preparation.peek(rollout)
        advantages = batch.advantages.clone()
        if self.settings.normalize_advantages:
            advantages[batch.indices] = normalized(batch.advantages[batch.indices])
        return batch.indices, self._objective(batch, advantages, Tally())

    def _objective(self, batch: PolicyBatch, advantages: Tensor, tally: Tally) -> SampleLosses:
        settings, kind = self.settings, self.actor.space.kind

        def sample_losses(chosen: Tensor) -> Tensor:
            states, actions = batch.states[chosen], batch.actions[chosen]
            parameters, values = self.network(states)
            with torch.no_grad():
                proximal = kind.distribution(self.average.network.policy(states)).log_prob(actions)
            distribution = kind.distribution(parameters)
            log_probs, entropy = distribution.log_prob(actions), distribution.entropy()
            policy_loss = decoupled_clip(
                log_probs, proximal, batch.behavior_log_probs[chosen], advantages[chosen], settings.clip_range
            )
            penalty = squared_log_ratio(log_probs, proximal)
            value_loss = batch.value_losses(values, chosen, settings.value_clip_range)
            tally.add(
                policy_loss=policy_loss,
                value_loss=value_loss,
                entropy=entropy,
                **distance(log_probs, proximal, settings.clip_range),
            )
            return (
                policy_loss
                + settings.kl_penalty * penalty
                + settings.value_coefficient * value_loss
                - settings.entropy_coefficient * entropy
            )

        return sample_losses

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
