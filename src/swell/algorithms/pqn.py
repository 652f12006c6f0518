"""PQN: Q-learning with λ-returns and LayerNorm, without replay and without a target network (arXiv 2407.04811)."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Discrete, Space
from torch import Generator, Tensor, nn

from swell.batch.rules import BatchSizes, scaled_betas, scaled_learning_rate
from swell.config.learners import PQNSettings
from swell.config.seeds import derive_seed
from swell.config.validation import with_fields
from swell.errors import ConfigError
from swell.kernels.factory import compiled_threads, q_kernel_of
from swell.learning.losses import q_regression
from swell.learning.optimize import (
    FlatAdam,
    StepTaken,
    accumulate_gradients,
    by_autograd,
    clipped_step,
    flat_parameters,
    shuffled_minibatches,
    summed_over_processes,
    update_report,
)
from swell.learning.precision import in_precision
from swell.learning.schedules import linear
from swell.learning.targets import rollout_returns
from swell.networks.encoders import seeded, tried
from swell.networks.parts import MaskedQNetwork, allowed_only, structure_of
from swell.networks.q_networks import make_q_network
from swell.ranks import Shares, drawn, is_alone, shared_samples, side_by_side
from swell.types import Actor, BatchPlan, GradientProbe, PolicyView, Rollout

if TYPE_CHECKING:
    from swell.learning.fused import Crew

BETAS = (0.9, 0.999)
"""RAdam's own."""


class PQN:
    """A Q-network that acts ε-greedily and regresses on the λ-returns of its own rollouts.

    Single settings may be given by name. A `network` of your own, from observations [B, ...] to Q-values [B, A], takes
    the place of the one that they describe. `reference` is the batch that they were tuned at, for rules that carry
    them to others.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        settings: PQNSettings | None = None,
        *,
        network: nn.Module | str | None = None,
        reference: BatchSizes | None = None,
        seed: int = 1,
        device: torch.device | str = "cpu",
        threads: int = 0,
        **fields: Any,
    ) -> None:
        if not isinstance(action_space, Discrete):
            raise ConfigError(f"pqn needs a Discrete action space, got {action_space}; try --algorithm ppo")
        if isinstance(network, str):
            network, fields["network"] = None, network
        self.settings = with_fields(PQNSettings, settings, fields)
        if reference is None and (self.settings.invariance == "on" or self.settings.learning_rate_rule == "sqrt"):
            raise ConfigError("invariance and learning_rate_rule sqrt need `reference`, the BatchSizes tuned at")
        self._num_actions = int(action_space.n)
        self._masks: int = structure_of(observation_space)["masks"]
        if network is None:
            shape, made_of = observation_space.shape or (), structure_of(observation_space)
            network = seeded(seed, lambda: make_q_network(self.settings, shape, self._num_actions, **made_of))
        else:
            network = MaskedQNetwork(network, self._masks) if self._masks else network
            _require_q_values(network, observation_space, self._num_actions)
        self.network = network.to(device)
        self.micro_batch_size = self.settings.micro_batch_size
        self.gradient_steps = 0
        self.optimizer = FlatAdam(flat_parameters(self.network), self.settings.learning_rate, BETAS, rectified=True)
        self._reference = reference or BatchSizes(1.0, 1.0)
        settings, flat = self.settings, self.optimizer.flat
        shape, dtype = observation_space.shape or (), observation_space.dtype
        path = "autograd" if settings.precision == "bfloat16" else settings.path
        self._kernel = q_kernel_of(self.network, flat, shape, dtype, path)
        self.path = "autograd" if self._kernel is None else "compiled"
        self.model: Callable[[Tensor], Tensor] = self._kernel or in_precision(settings.precision, self.network, shape)
        """What passes go through: the network, or a kernel that stands for it."""
        self.threads = compiled_threads(threads)
        """Of gradient steps on the compiled path; elsewhere they are torch's."""
        self._crew = self._make_crew()
        self._exploration = Generator().manual_seed(derive_seed(seed, "learner"))
        self._shuffle = Generator().manual_seed(derive_seed(seed, "learner") + 1)

    def _make_crew(self) -> "Crew | None":
        if self._kernel is None:
            return None
        from swell.learning.fused import Crew

        return Crew(self._kernel.part, self.threads)

    @torch.inference_mode()
    def act(self, observations: Tensor, progress: float) -> tuple[Tensor, dict[str, Tensor]]:
        """ε-greedy actions, and the value max_a Q(s, a) of each state, which the targets need later."""
        values, actions = self.model(observations).max(dim=1)
        count = observations.shape[0]
        chances = drawn(lambda rows: torch.rand(rows, generator=self._exploration), count)
        explores = chances < self.epsilon(progress)
        random_actions = self._random_actions(observations)
        device = actions.device
        return torch.where(explores.to(device), random_actions.to(device), actions), {"values": values}

    def _random_actions(self, observations: Tensor) -> Tensor:
        """One of the actions that are allowed, for each state."""
        count, generator = observations.shape[0], self._exploration
        if not self._masks:
            return drawn(lambda rows: torch.randint(self._num_actions, (rows,), generator=generator), count)
        scores = drawn(lambda rows: torch.rand((rows, self._num_actions), generator=generator), count)
        return allowed_only(scores.to(observations.device), observations, self._masks).argmax(dim=1)

    def actor(self, max_horizon: int, num_envs: int) -> Actor | None:
        if self._kernel is None:
            return None
        from swell.kernels.actors import QActor

        return QActor(self._kernel, self._num_actions, max_horizon, num_envs, self._exploration, self.epsilon)

    def epsilon(self, progress: float) -> float:
        settings = self.settings
        return linear(settings.epsilon_start, settings.epsilon_end, settings.epsilon_fraction, progress)

    @torch.no_grad()
    def greedy_actions(self, observations: Tensor) -> Tensor:
        parts = observations.split(self.settings.micro_batch_size)
        return torch.cat([self.model(part).argmax(dim=1) for part in parts])

    def view(self, states: Tensor, actions: Tensor) -> PolicyView:
        return PolicyView(self.greedy_actions(states))

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]:
        """Regresses Q(s, a) on the λ-returns, `plan.epochs` times over the rollout."""
        states, actions = rollout.states, rollout.actions.flatten()
        indices, shares = shared_samples(rollout.valid)
        targets = self.targets(rollout).flatten()
        learning_rate = self._configure(indices.shape[0], plan, progress)
        # Several processes add up their gradients at each step, which one call for all of them cannot.
        if self._kernel is not None and is_alone():
            steps = self._regress_compiled(states, actions, targets, indices, plan)
        else:
            steps = self._regress(states, actions, targets, indices, shares, plan)
        values = side_by_side(rollout.recorded["values"])
        return {
            **update_report(steps, indices.shape[0], plan),
            "gradient_steps": self.gradient_steps,
            "q_mean": values.flatten()[indices].mean().item(),
            "learning_rate": learning_rate,
            "epsilon": self.epsilon(progress),
        }

    def _regress(
        self, states: Tensor, actions: Tensor, targets: Tensor, indices: Tensor, shares: Shares, plan: BatchPlan
    ) -> list[StepTaken]:
        add_gradient = by_autograd(partial(self.losses, states, actions, targets))
        steps: list[StepTaken] = []
        for minibatch in shuffled_minibatches(indices, plan.minibatches, plan.epochs, self._shuffle):
            rows, size, gradient = shares.own(minibatch), minibatch.shape[0], self.optimizer.gradient
            loss, self.micro_batch_size = accumulate_gradients(
                add_gradient, rows, self.micro_batch_size, gradient, size
            )
            loss = summed_over_processes(gradient, loss)
            norm = clipped_step(self.optimizer, self.settings.max_gradient_norm, loss)
            steps.append(StepTaken(loss, norm))
            self.gradient_steps += 1
        return steps

    def _regress_compiled(
        self, states: Tensor, actions: Tensor, targets: Tensor, indices: Tensor, plan: BatchPlan
    ) -> list[StepTaken]:
        """The same in one call."""
        from swell.learning.fused import QPasses

        assert self._kernel is not None and self._crew is not None
        settings = self.settings
        rows = (states, actions, targets, settings.loss_coefficient)
        passes = QPasses(self._kernel, *rows, self._crew, self.optimizer, settings.max_gradient_norm, self._shuffle)
        return passes.run(indices, plan.minibatches, plan.epochs, self)

    def losses(self, states: Tensor, actions: Tensor, targets: Tensor, chosen: Tensor) -> Tensor:
        """The objective, [B] for the chosen rows."""
        q_values = self.model(states[chosen])
        return self.settings.loss_coefficient * q_regression(q_values, actions[chosen], targets[chosen])

    @torch.no_grad()
    def targets(self, rollout: Rollout) -> Tensor:
        """λ-returns [T, N] with the weights that acted."""
        rewards = self.settings.reward_scale * rollout.rewards
        values = rollout.recorded["values"]
        sum_over_time = None
        if self._kernel is not None:
            from swell.learning.fused import bootstrapped_returns as sum_over_time
        return rollout_returns(rollout, rewards, values, self._largest_values, self.settings, sum_over_time)

    def _largest_values(self, observations: Tensor) -> Tensor:
        return self.model(observations).amax(dim=1)

    def _configure(self, samples: int, plan: BatchPlan, progress: float) -> float:
        """Sets the optimizer to this moment and this batch, by the rules that are on; returns its learning rate."""
        settings, reference = self.settings, self._reference
        rate = settings.learning_rate * (1.0 - progress if settings.anneal_learning_rate else 1.0)
        if settings.learning_rate_rule == "sqrt":
            rate *= math.sqrt(samples / reference.iteration)
        rules = settings.invariance_rules if settings.invariance == "on" else ()
        divisor = reference.optimization / (samples / min(plan.minibatches, samples))
        if "learning-rate" in rules:
            rate = scaled_learning_rate(rate, divisor)
        if "betas" in rules:
            self.optimizer.betas = scaled_betas(BETAS, divisor)
        self.optimizer.learning_rate = rate
        return rate

    def gradient_probe(self, rollout: Rollout) -> GradientProbe:
        """The transitions to learn from, and the loss of each; the targets are those of the present weights."""
        targets = self.targets(rollout).flatten()
        losses = partial(self.losses, rollout.states, rollout.actions.flatten(), targets)
        trained = [self.optimizer.flat] if self._kernel else list(self.network.parameters())
        indices, shares = shared_samples(rollout.valid)
        return indices, shares.own_losses(losses), trained

    def state_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
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


def _require_q_values(network: nn.Module, observation_space: Space, num_actions: int) -> None:
    observations = torch.from_numpy(np.zeros((1, *(observation_space.shape or ())), observation_space.dtype))
    device = next((parameter.device for parameter in network.parameters()), None)
    outputs = tried(network, observations.to(device))
    if outputs != (1, num_actions):
        raise ConfigError(
            f"the network must map observations [B, ...] to Q-values [B, {num_actions}], got {list(outputs)}"
        )
