"""PPG: policy phases, and auxiliary phases that teach the policy's network values (arXiv 2009.04416).

With the averaged policy of PPO-EWMA as the one to stay near, it is PPG-EWMA (arXiv 2110.00641).
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from swell.config.learners import PPGEWMASettings, PPGSettings
from swell.learning.advantages import AdvantageMoments, normalized
from swell.learning.losses import value_error
from swell.learning.optimize import SampleMeans, by_autograd, shuffled_minibatches
from swell.learning.policy_batch import PolicyBatch
from swell.learning.policy_learner import PolicyLearner
from swell.learning.proximal_policy import WeightAverage, averaged_log_probs, decoupled_losses, moment_normalized
from swell.ranks import ALL_OWN, Shares, place
from swell.types import BatchPlan, GradientProbe, Rollout, SampleLosses

ALMOST_ONE = 1.0 - 1e-9
"""A phase made of so many thirds must end with the third of them."""


class PPG(PolicyLearner[PPGSettings | PPGEWMASettings]):
    """Phasic policy gradient. Phases are counted in env steps, so they stay as long when the batch moves."""

    settings_kind = PPGSettings
    has_auxiliary_head = True

    def start(self) -> None:
        self.average = self._make_average()
        self.moments = AdvantageMoments()
        self.auxiliary_optimizer = self.make_adam()
        self.phase = PhaseBuffer(math.ceil(self.settings.phase_env_steps / place().count))
        self.phase_done = 0.0

    def _make_average(self) -> "WeightAverage[Any] | None":
        """Plain PPG stays near the policy before the update, which needs none."""
        return None

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """One iteration of the policy phase, and the auxiliary phase after it if it is due."""
        batch = self.prepare(rollout)
        now = self.configure(batch, plan, progress)
        advantages = moment_normalized(batch, self.settings, self.moments, now.advantage_decay)
        means = SampleMeans()
        add_gradient = by_autograd(self._losses(batch, advantages, means))
        steps = []
        for minibatch in shuffled_minibatches(batch.indices, plan.minibatches, plan.epochs, self.shuffle):
            steps.append(self.gradient_step(add_gradient, minibatch, batch.shares))
            if self.average is not None:
                self.average.step(self.network, now.proximal_decay)
        metrics = {**self.report(batch, plan, now, steps, means.means()), "advantage_decay": now.advantage_decay}
        if self.average is not None:
            metrics["proximal_decay"] = now.proximal_decay
        if self.settings.auxiliary_epochs:
            is_own = None if batch.shares is ALL_OWN else batch.shares.are_own(batch.indices)
            self.phase.add(batch.states[batch.own], batch.returns[batch.own], is_own)
            self.phase_done += 1.0 / now.phase_iterations
            if self.phase_done >= ALMOST_ONE:
                metrics |= self._auxiliary_phase(progress)
        self.observe(batch)
        if self.average is not None:
            self.average.copy_buffers(self.network)
        return {**metrics, "gradient_steps": self.gradient_steps, "phase_progress": self.phase_done}

    def _losses(self, batch: PolicyBatch, advantages: Tensor, means: SampleMeans) -> SampleLosses:
        """The objective of the policy phase."""
        kind = self.space.kind
        mode = self.settings.staleness_mode if isinstance(self.settings, PPGSettings) else "decoupled"
        behavior, anchored = batch.anchors(mode)

        def anchored_log_probs(chosen: Tensor, states: Tensor, actions: Tensor) -> Tensor:
            return anchored[chosen]

        average = self.average
        proximal = anchored_log_probs if average is None else partial(averaged_log_probs, average, kind)
        return partial(decoupled_losses, self.model, kind, batch, advantages, behavior, proximal, self.settings, means)

    def _auxiliary_phase(self, progress: float) -> dict[str, float]:
        """Distils the phase's returns into the policy's network, and holds the policy itself where it was.

            ½ (V_aux − R)² + ½ (V − R)² + β · KL(π_before ‖ π)

        With its own Adam at the learning rate of the reference batch: its minibatches do not change with the batch.
        """
        settings, rate = self.settings, self.rules.tuned.learning_rate
        self.auxiliary_optimizer.learning_rate = rate * (1.0 - progress) if settings.anneal_learning_rate else rate
        states, returns = self.phase.states, self.phase.returns
        device = next(self.network.parameters()).device
        before = torch.cat([self.parameters(part.to(device)) for part in states.split(settings.micro_batch_size)])
        shares, size = self.phase.shares, self.phase.size
        means = SampleMeans()

        def losses(chosen: Tensor) -> Tensor:
            kind = self.space.kind
            parameters, values, auxiliary_values = self.model.auxiliary(states[chosen].to(device))
            targets = returns[chosen].to(device)
            clone_kl = kind.distribution(before[chosen.to(device)]).kl(kind.distribution(parameters))
            auxiliary_loss = 0.5 * value_error(auxiliary_values, targets) + 0.5 * value_error(values, targets)
            means.add(auxiliary_loss=auxiliary_loss, clone_kl=clone_kl)
            return auxiliary_loss + settings.clone_coefficient * clone_kl

        minibatches = max(1, round(size / settings.auxiliary_minibatch_size))
        every = torch.arange(size)
        for minibatch in shuffled_minibatches(every, minibatches, settings.auxiliary_epochs, self.shuffle):
            self.gradient_step(by_autograd(losses), minibatch, shares, self.auxiliary_optimizer)
        self.phase.clear()
        self.phase_done = 0.0
        if self.average is not None:
            self.average.reset(self.network)
        return means.means()

    def gradient_probe(self, rollout: Rollout) -> GradientProbe:
        """The losses of the first gradient step of the policy phase; changes nothing."""
        batch = self.peek(rollout)
        rescale = torch.clone if self.settings.advantage_norm == "none" else normalized
        losses = self._losses(batch, batch.rescaled_advantages(rescale), SampleMeans())
        return batch.indices, batch.shares.own_losses(losses), self.trained

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


class PPGEWMA(PPG):
    """PPG that stays near an average of its recent weights."""

    settings_kind = PPGEWMASettings

    def _make_average(self) -> "WeightAverage[Any] | None":
        return WeightAverage(self.network, self.kernel_of)


class PhaseBuffer:
    """Rows that are added until the phase ends. Bytes stay bytes: a phase may hold millions of images.

    It lives on the CPU, and is allocated once for the expected number of rows; a batch that overshoots makes it grow.
    Where several processes share a run, each keeps its own rows, and knows which of all samples these are.
    """

    def __init__(self, expected_rows: int) -> None:
        self._expected_rows = expected_rows
        self._states: Tensor | None = None
        self._returns = torch.empty(0)
        self._rows = 0
        self._are_own: list[Tensor] = []

    @property
    def size(self) -> int:
        """Samples of all processes."""
        return sum(map(len, self._are_own)) if self._are_own else self._rows

    @property
    def shares(self) -> Shares:
        if not self._are_own:
            return ALL_OWN
        are_own = torch.cat(self._are_own)
        return Shares(torch.where(are_own, are_own.cumsum(0) - 1, -1))

    @property
    def states(self) -> Tensor:
        return torch.empty(0) if self._states is None else self._states[: self._rows]

    @property
    def returns(self) -> Tensor:
        return self._returns[: self._rows]

    def add(self, states: Tensor, returns: Tensor, are_own: Tensor | None = None) -> None:
        """`are_own` says which samples of all processes these are, where there are several."""
        if are_own is not None:
            self._are_own.append(are_own.cpu())
        end = self._rows + returns.shape[0]
        if self._states is None or end > self._states.shape[0]:
            self._make_room(states, max(end, self._expected_rows))
        assert self._states is not None
        self._states[self._rows : end] = states
        self._returns[self._rows : end] = returns
        self._rows = end

    def clear(self) -> None:
        self._rows = 0
        self._are_own.clear()

    def _make_room(self, like: Tensor, rows: int) -> None:
        states = torch.empty((rows, *like.shape[1:]), dtype=like.dtype)
        returns = torch.empty(rows)
        if self._states is not None:
            states[: self._rows] = self.states
            returns[: self._rows] = self.returns
        self._states, self._returns = states, returns

    def state_dict(self) -> dict[str, Any]:
        rows = {"states": self.states, "returns": self.returns}
        return {**rows, "are_own": torch.cat(self._are_own)} if self._are_own else rows

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._states, self._rows = None, 0
        self._are_own.clear()
        if state["returns"].shape[0] or "are_own" in state:
            self.add(state["states"].cpu(), state["returns"].cpu(), state.get("are_own"))
