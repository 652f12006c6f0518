"""PPG: policy phases, and auxiliary phases that teach the policy's network values (arXiv 2009.04416).

With the averaged policy of PPO-EWMA as the one to stay near, it is PPG-EWMA (arXiv 2110.00641).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from swell.algorithms.phase_buffer import PhaseBuffer
from swell.batch.hyperparameters import Hyperparameters
from swell.learning.actor import Actor
from swell.learning.advantages import AdvantageMoments, normalized
from swell.learning.losses import value_error
from swell.learning.optimize import by_autograd, clipped_step, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch, Preparation, StalenessMode
from swell.learning.policy_learner import PolicyGradient, StepSettings
from swell.learning.proximal_policy import DecoupledSettings, averaged, decoupled_objective
from swell.learning.tally import Tally
from swell.learning.weight_average import WeightAverage
from swell.types import BatchPlan, Rollout, SampleLosses

ALMOST_ONE = 1.0 - 1e-9
"""A phase made of so many thirds must end with the third of them."""


@dataclass(frozen=True)
class PPGSettings:
    """The numbers of both phases; RunConfig explains each."""

    policy: DecoupledSettings
    staleness_mode: StalenessMode
    averages_policy: bool
    phase_env_steps: int
    auxiliary_epochs: int
    auxiliary_minibatch_size: int
    clone_coefficient: float


class PPG(PolicyGradient[PPGSettings]):
    """Phasic policy gradient. Phases are counted in env steps, so they stay as long when the batch moves."""

    def __init__(
        self,
        actor: Actor,
        preparation: Preparation,
        hyperparameters: Hyperparameters,
        step_settings: StepSettings,
        settings: PPGSettings,
        seed: int,
    ) -> None:
        super().__init__(actor, preparation, hyperparameters, step_settings, settings, seed)
        self.average = WeightAverage(self.network) if settings.averages_policy else None
        self.moments = AdvantageMoments()
        self.auxiliary_optimizer = self.make_adam()
        self.phase = PhaseBuffer(settings.phase_env_steps)
        self.phase_done = 0.0

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """One iteration of the policy phase, and the auxiliary phase after it if it is due."""
        batch = self.preparation.batch(rollout)
        tuned = self.configure(batch, plan, progress)
        advantages = batch.advantages
        if self.settings.policy.normalize_advantages:
            advantages = batch.rescaled_advantages(partial(self.moments.normalize, decay=tuned.advantage_decay))
        tally = Tally()
        sample_losses = self._objective(batch, advantages, tally)
        steps = []
        for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, plan.epochs, self.shuffle):
            steps.append(self.gradient_step(by_autograd(sample_losses), minibatch))
            if self.average is not None:
                self.average.step(self.network, tuned.proximal_decay)
        numbers = {"advantage_decay": tuned.advantage_decay}
        if self.average is not None:
            numbers["proximal_decay"] = tuned.proximal_decay
        metrics = {**self.report(batch, plan, tuned, steps), **numbers, **tally.means()}
        if self.settings.auxiliary_epochs:
            self.phase.add(batch.states[batch.indices], batch.returns[batch.indices])
            self.phase_done += 1.0 / tuned.phase_iterations
            if self.phase_done >= ALMOST_ONE:
                metrics |= self._auxiliary_phase(progress)
        self.actor.observe(batch.states, batch.indices)
        if self.average is not None:
            self.average.copy_buffers(self.network)
        return {**metrics, "gradient_steps": self.gradient_steps, "phase_progress": self.phase_done}

    def gradient_probe(self, rollout: Rollout) -> tuple[Tensor, SampleLosses]:
        """The losses of the first gradient step of the policy phase; changes nothing."""
        batch = self.preparation.peek(rollout)
        rescale = normalized if self.settings.policy.normalize_advantages else torch.clone
        return batch.indices, self._objective(batch, batch.rescaled_advantages(rescale), Tally())

    def _objective(self, batch: PolicyBatch, advantages: Tensor, tally: Tally) -> SampleLosses:
        behavior, anchored = batch.anchors(self.settings.staleness_mode)

        def old_log_probs(chosen: Tensor, states: Tensor, actions: Tensor) -> Tensor:
            return anchored[chosen]

        proximal = old_log_probs if self.average is None else averaged(self.average, self.actor)
        return decoupled_objective(self.actor, batch, advantages, behavior, proximal, self.settings.policy, tally)

    def _auxiliary_phase(self, progress: float) -> dict[str, float]:
        """Distils the phase's returns into the policy's network, and holds the policy itself where it was.

            ½ (V_aux − R)² + ½ (V − R)² + β · KL(π_before ‖ π)

        With its own Adam at the learning rate of the reference batch: its minibatches do not change with the batch.
        """
        settings = self.settings
        rate = self.hyperparameters.tuned.learning_rate
        annealed = rate * (1.0 - progress) if self.hyperparameters.anneal_learning_rate else rate
        self.auxiliary_optimizer.learning_rate = annealed
        states, returns = self.phase.states, self.phase.returns
        device = next(self.network.parameters()).device
        cloned = torch.cat(
            [self.actor.parameters(part.to(device)) for part in states.split(self.step_settings.micro_batch_size)]
        )
        tally = Tally()

        def sample_losses(chosen: Tensor) -> Tensor:
            kind = self.actor.space.kind
            parameters, values, auxiliary_values = self.network.auxiliary(states[chosen].to(device))
            targets = returns[chosen].to(device)
            clone_kl = kind.distribution(cloned[chosen.to(device)]).kl(kind.distribution(parameters))
            auxiliary_loss = 0.5 * value_error(auxiliary_values, targets) + 0.5 * value_error(values, targets)
            tally.add(auxiliary_loss=auxiliary_loss, clone_kl=clone_kl)
            return auxiliary_loss + settings.clone_coefficient * clone_kl

        minibatches = max(1, round(returns.shape[0] / settings.auxiliary_minibatch_size))
        every = torch.arange(returns.shape[0])
        for minibatch in shuffled_minibatches(every, minibatches, settings.auxiliary_epochs, self.shuffle):
            loss = self.micro_batches.accumulate(
                by_autograd(sample_losses), minibatch, self.auxiliary_optimizer.gradient
            )
            clipped_step(self.auxiliary_optimizer, self.step_settings.max_gradient_norm, loss)
            self.gradient_steps += 1
        self.phase.clear()
        self.phase_done = 0.0
        if self.average is not None:
            self.average.reset(self.network)
        return tally.means()

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "moments": self.moments.state_dict(),
            "auxiliary_optimizer": self.auxiliary_optimizer.state_dict(),
            "phase": self.phase.state_dict(),
            "phase_done": self.phase_done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.moments.load_state_dict(state["moments"])
        self.auxiliary_optimizer.load_state_dict(state["auxiliary_optimizer"])
        self.phase.load_state_dict(state["phase"])
        self.phase_done = float(state["phase_done"])
