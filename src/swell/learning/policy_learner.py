"""What all learners of a stochastic policy share: acting, gradient steps, state. A subclass adds its objective."""

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Generator, Tensor

from swell.batch.hyperparameters import Hyperparameters
from swell.batch.rules import BatchSizes, Tuned
from swell.kernels.policy_chain import policy_chain_of
from swell.learning.actor import Actor
from swell.learning.micro_batches import MicroBatches
from swell.learning.optimize import AddGradient, FlatAdam, clipped_step, flat_parameters
from swell.learning.policy_batch import PolicyBatch, Preparation
from swell.networks.actor_critics import ActorCritic
from swell.types import BatchPlan


@dataclass(frozen=True)
class StepSettings:
    """How a gradient becomes a step; RunConfig explains each."""

    adam_epsilon: float
    max_gradient_norm: float | None
    micro_batch_size: int


Settings = TypeVar("Settings")


class PolicyGradient(Generic[Settings]):
    """A policy, its Adam and its randomness. It knows no objective, so it cannot learn by itself."""

    def __init__(
        self,
        actor: Actor,
        preparation: Preparation,
        hyperparameters: Hyperparameters,
        step_settings: StepSettings,
        settings: Settings,
        seed: int,
    ) -> None:
        self.actor = actor
        self.preparation = preparation
        self.hyperparameters = hyperparameters
        self.step_settings = step_settings
        self.settings = settings
        self._flat = flat_parameters(self.network)
        self.chain = actor.chain = policy_chain_of(self.network)
        self.optimizer = self.make_adam()
        self.micro_batches = MicroBatches(step_settings.micro_batch_size)
        self.gradient_steps = 0
        self.shuffle = Generator().manual_seed(seed)

    @property
    def network(self) -> ActorCritic:
        return self.actor.network

    def act(self, observations: Tensor, progress: float) -> tuple[Tensor, dict[str, Tensor]]:
        return self.actor.act(observations)

    def greedy_actions(self, observations: Tensor) -> Tensor:
        return self.actor.greedy_actions(observations)

    def policy_parameters(self, observations: Tensor) -> Tensor:
        return self.actor.parameters(observations)

    def configure(self, batch: PolicyBatch, plan: BatchPlan, progress: float) -> Tuned:
        """Sets the optimizer to this moment and this batch; returns all the numbers that depend on them."""
        size = batch.indices.shape[0]
        tuned = self.hyperparameters.at(BatchSizes(size, size / min(plan.minibatches, size)), progress)
        self.optimizer.learning_rate = tuned.learning_rate
        self.optimizer.betas = tuned.adam_betas
        return tuned

    def gradient_step(self, add_gradient: AddGradient, minibatch: Tensor) -> "StepTaken":
        loss = self.micro_batches.accumulate(add_gradient, minibatch, self.optimizer.gradient)
        norm = clipped_step(self.optimizer, self.step_settings.max_gradient_norm, loss)
        self.gradient_steps += 1
        return StepTaken(loss, norm)

    def report(self, batch: PolicyBatch, plan: BatchPlan, tuned: Tuned, steps: list["StepTaken"]) -> dict[str, float]:
        """The metrics that every update has."""
        size = batch.indices.shape[0]
        minibatches = min(plan.minibatches, size)
        return {
            "loss": sum(step.loss for step in steps) / len(steps),
            "gradient_norm": sum(step.gradient_norm for step in steps) / len(steps),
            "gradient_steps": self.gradient_steps,
            "batch_size": size,
            "minibatches": minibatches,
            "minibatch_size": math.ceil(size / minibatches),
            "epochs": math.ceil(len(steps) / minibatches),
            "gradient_steps_per_sample": len(steps) / size,
            "value_mean": batch.values[batch.indices].mean().item(),
            "explained_variance": explained_variance(batch.values[batch.indices], batch.returns[batch.indices]),
            "learning_rate": tuned.learning_rate,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "preparation": self.preparation.state_dict(),
            "gradient_steps": self.gradient_steps,
            "exploration": self.actor.generator_state(),
            "shuffle": self.shuffle.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.preparation.load_state_dict(state["preparation"])
        self.gradient_steps = state["gradient_steps"]
        self.actor.set_generator_state(state["exploration"])
        self.shuffle.set_state(state["shuffle"])

    def make_adam(self) -> FlatAdam:
        tuned = self.hyperparameters.tuned
        return FlatAdam(self._flat, tuned.learning_rate, tuned.adam_betas, self.step_settings.adam_epsilon)


@dataclass(frozen=True)
class StepTaken:
    """One gradient step: its loss and the norm of its gradient before clipping."""

    loss: float
    gradient_norm: float


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 − Var(R − V) / Var(R): 1 for perfect values, 0 for a constant, negative for worse; 0 if all returns agree."""
    variance = returns.var(correction=0)
    return (1.0 - (returns - values).var(correction=0) / variance).item() if variance > 0 else 0.0


@torch.no_grad()
def distance(log_probs: Tensor, proximal_log_probs: Tensor, clip_range: float) -> dict[str, Tensor]:
    """How far the policy has gone from the one it should stay near, per sample; a clip range of 0 clips nothing."""
    log_ratios = log_probs - proximal_log_probs
    ratios = log_ratios.exp()
    approx_kl = (ratios - 1.0) - log_ratios
    if clip_range == 0.0:
        return {"approx_kl": approx_kl}
    return {"approx_kl": approx_kl, "clip_fraction": ((ratios - 1.0).abs() > clip_range).float()}
