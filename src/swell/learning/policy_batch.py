"""From a rollout to what a policy learns from: scaled rewards, values, advantages, returns, log-probabilities."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from swell.learning.actor import Actor
from swell.learning.advantages import RewardScaler
from swell.learning.losses import clipped_value_error, value_error, value_error_slopes
from swell.learning.targets import lambda_returns, successor_values
from swell.types import Rollout

StalenessMode = Literal["behavior", "recent", "decoupled"]


@dataclass(frozen=True)
class PolicyBatch:
    """A rollout, flattened to [T * N]; only the rows in `indices` are real transitions."""

    indices: Tensor
    states: Tensor
    actions: Tensor
    """As the policy drew them: continuous ones are not clipped."""
    parameters: Tensor
    """[T * N, P] of the distributions that acted."""
    behavior_log_probs: Tensor
    """Of the policy that acted."""
    recent_log_probs: Tensor
    """Of the policy before this update; those that acted, unless the rollout is stale."""
    values: Tensor
    advantages: Tensor
    returns: Tensor

    def anchors(self, mode: StalenessMode) -> tuple[Tensor, Tensor]:
        """Log-probabilities in the two roles of PPO's old policy: what the ratio corrects for, what to stay near.

        All three modes agree on a fresh rollout.
        """
        if mode == "behavior" or self.recent_log_probs is self.behavior_log_probs:
            return self.behavior_log_probs, self.behavior_log_probs
        if mode == "recent":
            return self.recent_log_probs, self.recent_log_probs
        return self.behavior_log_probs, self.recent_log_probs

    def rescaled_advantages(self, rescale: Callable[[Tensor], Tensor]) -> Tensor:
        """A copy of the advantages with the real rows rescaled."""
        advantages = self.advantages.clone()
        advantages[self.indices] = rescale(self.advantages[self.indices])
        return advantages

    def value_losses(self, values: Tensor, chosen: Tensor, clip_range: float | None) -> Tensor:
        """Squared errors of new values for the chosen rows, clipped around the old values if there is a range."""
        if clip_range is None:
            return value_error(values, self.returns[chosen])
        return clipped_value_error(values, self.values[chosen], self.returns[chosen], clip_range)

    def value_loss_slopes(self, values: Tensor, chosen: Tensor, clip_range: float | None) -> tuple[Tensor, Tensor]:
        """What `value_losses` says, and its slopes ∂loss/∂V."""
        old_values = None if clip_range is None else self.values[chosen]
        return value_error_slopes(values, self.returns[chosen], old_values, clip_range or 0.0)


@dataclass(frozen=True)
class ReturnSettings:
    """How rewards become returns; RunConfig explains each."""

    discount: float
    trace_decay: float
    reward_scale: float
    normalize_rewards: bool
    truncation_is_termination: bool
    stale: bool


class Preparation:
    """Makes batches of rollouts, and remembers the scale of the rewards."""

    def __init__(self, actor: Actor, settings: ReturnSettings, num_envs: int) -> None:
        self._actor = actor
        self._settings = settings
        self._reward_scaler = RewardScaler(num_envs, settings.discount) if settings.normalize_rewards else None

    def batch(self, rollout: Rollout) -> PolicyBatch:
        """What to train on; the scale of the rewards takes in this rollout first."""
        if self._reward_scaler is not None:
            ended = rollout.terminated | rollout.truncated
            self._reward_scaler.observe(rollout.rewards, ended, rollout.valid)
        return self.peek(rollout)

    @torch.no_grad()
    def peek(self, rollout: Rollout) -> PolicyBatch:
        """The same without remembering anything."""
        kind = self._actor.space.kind
        states = rollout.states
        actions = rollout.recorded.get("sampled_actions", rollout.actions).flatten(0, 1)
        parameters = rollout.recorded["parameters"].flatten(0, 1)
        behavior_log_probs = kind.distribution(parameters).log_prob(actions)
        recent_log_probs, values = behavior_log_probs, rollout.recorded["values"]
        if self._settings.stale:
            # All values from one network: mixing those of the past with a bootstrap of today would tear the returns.
            recent_log_probs = kind.distribution(self._actor.parameters(states)).log_prob(actions)
            values = self._actor.values(states).view_as(rollout.rewards)
        returns = self._returns(rollout, values)
        return PolicyBatch(
            indices=rollout.valid_indices,
            states=states,
            actions=actions,
            parameters=parameters,
            behavior_log_probs=behavior_log_probs,
            recent_log_probs=recent_log_probs,
            values=values.flatten(),
            advantages=(returns - values).flatten(),
            returns=returns.flatten(),
        )

    def _returns(self, rollout: Rollout, values: Tensor) -> Tensor:
        """λ-returns [T, N]; less the values they are the generalized advantages."""
        settings = self._settings
        terminated = rollout.terminated
        if settings.truncation_is_termination:
            terminated = terminated | rollout.truncated
        next_values = successor_values(
            values,
            self._actor.values(rollout.observations[-1]),
            self._actor.values(rollout.final_observations),
            rollout.final_indices,
        )
        discounts = settings.discount * (~terminated).float()
        traces = settings.trace_decay * (~(rollout.terminated | rollout.truncated)).float()
        return lambda_returns(self._rewards(rollout), discounts, next_values, traces)

    def _rewards(self, rollout: Rollout) -> Tensor:
        rewards = self._settings.reward_scale * rollout.rewards
        return rewards if self._reward_scaler is None else self._reward_scaler.scale(rewards)

    def state_dict(self) -> dict[str, Any]:
        return {"reward_scaler": None if self._reward_scaler is None else self._reward_scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._reward_scaler is not None:
            self._reward_scaler.load_state_dict(state["reward_scaler"])
