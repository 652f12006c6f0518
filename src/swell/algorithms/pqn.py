"""PQN: Q-learning with λ-returns and LayerNorm, without replay and without a target network (arXiv 2407.04811)."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from swell.batch.rules import Rule, scaled_betas, scaled_learning_rate
from swell.kernels.written_gradients import Tape, chain_of
from swell.learning.losses import q_regression, q_regression_slopes
from swell.learning.micro_batches import MicroBatches
from swell.learning.optimize import (
    AddGradient,
    FlatAdam,
    by_autograd,
    clipped_step,
    flat_parameters,
    shuffled_minibatches,
)
from swell.learning.schedules import linear
from swell.learning.targets import lambda_returns, successor_values
from swell.types import BatchPlan, Rollout, SampleLosses

LearningRateRule = Literal["constant", "sqrt"]
BETAS = (0.9, 0.999)
"""RAdam's own."""


@dataclass(frozen=True)
class PQNSettings:
    """The numbers of the update; RunConfig explains each."""

    learning_rate: float
    anneal_learning_rate: bool
    learning_rate_rule: LearningRateRule
    reference_batch: int
    epsilon_start: float
    epsilon_end: float
    epsilon_fraction: float
    discount: float
    trace_decay: float
    max_gradient_norm: float | None
    loss_coefficient: float
    reward_scale: float
    truncation_is_termination: bool
    micro_batch_size: int
    invariance_rules: Collection[Rule] = ()
    reference_minibatch: float = 1.0


class PQN:
    """A Q-network that acts ε-greedily and regresses on the λ-returns of its own rollouts."""

    def __init__(self, network: nn.Module, num_actions: int, settings: PQNSettings, seed: int) -> None:
        self.network = network
        self.settings = settings
        self.optimizer = FlatAdam(flat_parameters(network), settings.learning_rate, BETAS, rectified=True)
        self._chain = chain_of(network)
        self.micro_batches = MicroBatches(settings.micro_batch_size)
        self.gradient_steps = 0
        self._num_actions = num_actions
        self._exploration = Generator().manual_seed(seed)
        self._shuffle = Generator().manual_seed(seed + 1)

    @torch.inference_mode()
    def act(self, observations: Tensor, progress: float) -> tuple[Tensor, dict[str, Tensor]]:
        """ε-greedy actions, and the value max_a Q(s, a) of each state, which the targets need later."""
        q_values = self.network(observations) if self._chain is None else self._chain.forward(observations, [])
        values, actions = q_values.max(dim=1)
        count = observations.shape[0]
        explores = torch.rand(count, generator=self._exploration) < self.epsilon(progress)
        random_actions = torch.randint(self._num_actions, (count,), generator=self._exploration)
        device = actions.device
        return torch.where(explores.to(device), random_actions.to(device), actions), {"values": values}

    def epsilon(self, progress: float) -> float:
        settings = self.settings
        return linear(settings.epsilon_start, settings.epsilon_end, settings.epsilon_fraction, progress)

    @torch.no_grad()
    def greedy_actions(self, observations: Tensor) -> Tensor:
        parts = observations.split(self.settings.micro_batch_size)
        return torch.cat([self.network(part).argmax(dim=1) for part in parts])

    def learning_rate(self, batch: int, progress: float) -> float:
        settings = self.settings
        rate = settings.learning_rate * (1.0 - progress if settings.anneal_learning_rate else 1.0)
        return rate * math.sqrt(batch / settings.reference_batch) if settings.learning_rate_rule == "sqrt" else rate

    def _configure(self, learning_rate: float, minibatch: float) -> float:
        """Sets the optimizer to this size of a gradient step, by the rules that are on; returns its learning rate."""
        settings = self.settings
        divisor = settings.reference_minibatch / minibatch
        if "learning-rate" in settings.invariance_rules:
            learning_rate = scaled_learning_rate(learning_rate, divisor)
        if "betas" in settings.invariance_rules:
            self.optimizer.betas = scaled_betas(BETAS, divisor)
        self.optimizer.learning_rate = learning_rate
        return learning_rate

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """Regresses Q(s, a) on the λ-returns, `plan.epochs` times over the rollout."""
        indices, add_gradient = rollout.valid_indices, self._add_gradient(rollout)
        learning_rate = self.learning_rate(indices.shape[0], progress)
        learning_rate = self._configure(learning_rate, indices.shape[0] / min(plan.minibatches, indices.shape[0]))
        losses: list[float] = []
        norms: list[float] = []
        for minibatch in shuffled_minibatches(indices, plan.minibatches, plan.epochs, self._shuffle):
            losses.append(self.micro_batches.accumulate(add_gradient, minibatch, self.optimizer.gradient))
            norms.append(clipped_step(self.optimizer, self.settings.max_gradient_norm, losses[-1]))
        self.gradient_steps += len(losses)
        return {
            "loss": sum(losses) / len(losses),
            "gradient_norm": sum(norms) / len(norms),
            "gradient_steps": self.gradient_steps,
            "batch_size": indices.shape[0],
            "minibatches": min(plan.minibatches, indices.shape[0]),
            "minibatch_size": math.ceil(indices.shape[0] / plan.minibatches),
            "epochs": plan.epochs,
            "gradient_steps_per_sample": len(losses) / indices.shape[0],
            "q_mean": rollout.recorded["values"][rollout.valid].mean().item(),
            "learning_rate": learning_rate,
            "epsilon": self.epsilon(progress),
        }

    def gradient_probe(self, rollout: Rollout) -> tuple[Tensor, SampleLosses]:
        """The transitions to learn from, and the loss of each; the targets are those of the present weights."""
        targets = self.targets(rollout).flatten()
        indices, states, actions = rollout.valid_indices, rollout.states, rollout.actions.flatten()

        def sample_losses(chosen: Tensor) -> Tensor:
            q_values = self.network(states[chosen])
            return self.settings.loss_coefficient * q_regression(q_values, actions[chosen], targets[chosen])

        return indices, sample_losses

    def _add_gradient(self, rollout: Rollout) -> AddGradient:
        """The gradient of the losses of `gradient_probe`, by the network's own chain of layers if it is one."""
        chain = self._chain
        if chain is None:
            return by_autograd(self.gradient_probe(rollout)[1])
        targets = self.targets(rollout).flatten()
        states, actions = rollout.states, rollout.actions.flatten()

        @torch.inference_mode()
        def add_gradient(chosen: Tensor, minibatch_size: int) -> float:
            tape: Tape = []
            q_values = chain.forward(states[chosen], tape)
            losses, slopes = q_regression_slopes(q_values, actions[chosen], targets[chosen])
            share = self.settings.loss_coefficient / minibatch_size
            chain.backward(slopes.mul_(share), tape)
            return losses.sum().item() * share

        return add_gradient

    @torch.no_grad()
    def targets(self, rollout: Rollout) -> Tensor:
        """λ-returns [T, N] with the weights that acted; a time limit bootstraps from the observation it cut off."""
        terminated = rollout.terminated
        if self.settings.truncation_is_termination:
            terminated = terminated | rollout.truncated
        next_values = successor_values(
            rollout.recorded["values"],
            self._values(rollout.observations[-1]),
            self._values(rollout.final_observations),
            rollout.final_indices,
        )
        discounts = self.settings.discount * (~terminated).float()
        traces = self.settings.trace_decay * (~(rollout.terminated | rollout.truncated)).float()
        return lambda_returns(self.settings.reward_scale * rollout.rewards, discounts, next_values, traces)

    def _values(self, observations: Tensor) -> Tensor:
        if observations.shape[0] == 0:
            return torch.empty(0, device=observations.device)
        return self.network(observations).amax(dim=1)

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "gradient_steps": self.gradient_steps,
            "exploration": self._exploration.get_state(),
            "shuffle": self._shuffle.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.gradient_steps = state["gradient_steps"]
        self._exploration.set_state(state["exploration"])
        self._shuffle.set_state(state["shuffle"])
