"""A rollout as what a policy learns from: values, advantages, returns, log-probabilities."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from swell.config.learners import StalenessMode
from swell.learning.advantages import normalized
from swell.learning.losses import clipped_value_error, value_error
from swell.ranks import ALL_OWN, Shares


@dataclass(frozen=True)
class PolicyBatch:
    """A rollout, flattened to [T * N]; only the rows in `indices` are real transitions.

    Where several processes share it, `indices` are of all of them and the tensors have the rows of this one.
    """

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
    shares: Shares = ALL_OWN
    """Which of the transitions are this process's."""

    @property
    def size(self) -> int:
        """How many real transitions it has."""
        return self.indices.shape[0]

    @property
    def own(self) -> Tensor:
        """The rows of this process's real transitions."""
        return self.shares.own(self.indices)

    @cached_property
    def _of_all(self) -> tuple[Tensor, Tensor, Tensor]:
        """Values, advantages and returns of all processes, in one message."""
        if self.shares is ALL_OWN:
            return self.values, self.advantages, self.returns
        values, returns = self.shares.everyones(torch.stack((self.values, self.returns)))
        return values, returns - values, returns

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
        """A copy of the advantages with the real rows rescaled, by what those of all processes are like."""
        advantages = self.advantages.clone()
        _, of_all, _ = self._of_all
        advantages[self.own] = self.shares.own_of(self.indices, rescale(of_all[self.indices]))
        return advantages

    def normalize_minibatch(self, minibatch: Tensor, advantages: Tensor) -> None:
        """Writes this process's normalised advantages of a minibatch to where `advantages` has them."""
        _, of_all, _ = self._of_all
        advantages[self.shares.own(minibatch)] = self.shares.own_of(minibatch, normalized(of_all[minibatch]))

    def value_losses(self, values: Tensor, chosen: Tensor, clip_range: float | None) -> Tensor:
        """Squared errors of new values for the chosen rows, clipped around the old values if there is a range."""
        if clip_range is None:
            return value_error(values, self.returns[chosen])
        return clipped_value_error(values, self.values[chosen], self.returns[chosen], clip_range)

    def report(self) -> dict[str, float]:
        """What the values were worth."""
        values, _, returns = self._of_all
        if self.size < values.shape[0]:
            values, returns = values[self.indices], returns[self.indices]
        numbers = torch.stack((values, returns, returns - values))
        variances, (value_mean, _, _) = (moment.tolist() for moment in torch.var_mean(numbers, dim=1, correction=0))
        return {"value_mean": value_mean, "explained_variance": explained_variance(*variances[1:])}


def explained_variance(of_returns: float, of_errors: float) -> float:
    """1 − Var(R − V) / Var(R): 1 for perfect values, 0 for a constant, negative for worse; 0 if all returns agree."""
    return 1.0 - of_errors / of_returns if of_returns > 0.0 else 0.0
