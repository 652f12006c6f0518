"""What turns a rollout's rewards and advantages into numbers of a size that a policy learner can train on."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swell.networks.normalizer import Moments, merged
from swell.ranks import everyones

SMALLEST_SPREAD = 1e-8
"""Added to every standard deviation before dividing by it."""
LARGEST_REWARD = 10.0
"""Scaled rewards are clipped here, on both sides."""


def normalized(advantages: Tensor) -> Tensor:
    """(A − mean)/(std + 10⁻⁸) of this batch, with its unbiased std; a single advantage is only centred."""
    if advantages.numel() < 2:
        return advantages - advantages.mean()
    std, mean = torch.std_mean(advantages)
    return (advantages - mean) / (std + SMALLEST_SPREAD)


class AdvantageMoments:
    """Mean and std of the advantages of recent batches, the newest included.

    It keeps Σ1, Σx and Σx² and multiplies each by β before a batch is added: batches count by their size, and there is
    no bias at the start. A decay of 0 knows only the current batch.
    """

    def __init__(self) -> None:
        self._count = 0.0
        self._sum = 0.0
        self._sum_of_squares = 0.0

    def normalize(self, advantages: Tensor, decay: float) -> Tensor:
        """Takes in a batch [B] and returns (A − mean)/(std + 10⁻⁸); the std is that of the weighted population."""
        exact = advantages.detach().to("cpu", torch.float64)  # in float32 the difference below could be mostly rounding
        self._count = decay * self._count + exact.numel()
        self._sum = decay * self._sum + exact.sum().item()
        self._sum_of_squares = decay * self._sum_of_squares + exact.square().sum().item()
        mean = self._sum / self._count
        variance = max(0.0, self._sum_of_squares / self._count - mean**2)
        return (advantages - mean) / (math.sqrt(variance) + SMALLEST_SPREAD)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._count, "sum": self._sum, "sum_of_squares": self._sum_of_squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count = float(state["count"])
        self._sum = float(state["sum"])
        self._sum_of_squares = float(state["sum_of_squares"])


SumOverTime = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""`running_sums`, or a kernel that does the same."""


def running_sums(rewards: np.ndarray, discounts: np.ndarray, carried: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ret_t = r_t + γ_{t−1} · ret_{t−1}, [T, N], from `carried` [N] on; and what is carried on."""
    returns = rewards.copy()
    for step in range(returns.shape[0]):
        returns[step] += carried
        carried = returns[step] * discounts[step]
    return returns, carried


class RewardNormalizer:
    """Divides rewards by the std of all discounted returns so far; their mean stays in, so that signs do.

        ret_t = r_t + γ·ret_{t−1},   ret = 0 before the first step of an episode

    γ is the discount of training: OpenAI's code has 0.99 here whatever that is, which cleanrl #203 calls incorrect.
    """

    def __init__(self, discount: float, sum_over_time: SumOverTime | None = None) -> None:
        self._discount = discount
        self._sum_over_time = sum_over_time or running_sums
        self._returns: np.ndarray | float = 0.0
        """Of the episodes in flight, [N] once there was a rollout."""
        self._moments = Moments(0, 0.0, 0.0)

    def observe(self, rewards: Tensor, ended: Tensor, valid: Tensor) -> None:
        """Takes in a rollout, all [T, N]; rows that are not `valid` are no transitions and leave no trace."""
        is_valid = valid.cpu().numpy()
        continues = is_valid & ~ended.cpu().numpy()
        returns = self._discounted_returns(rewards.detach().to("cpu", torch.float64).numpy(), continues)
        self._add(returns[is_valid])

    def normalize(self, rewards: Tensor) -> Tensor:
        """r / (std + 10⁻⁸), clipped to ±10; unchanged as long as nothing was observed."""
        if self._moments.count == 0:
            return rewards
        std = math.sqrt(self._moments.squared_deviations / self._moments.count)
        return (rewards / (std + SMALLEST_SPREAD)).clamp(-LARGEST_REWARD, LARGEST_REWARD)

    def _discounted_returns(self, rewards: np.ndarray, continues: np.ndarray) -> np.ndarray:
        """[T, N] running returns; what goes on into the next rollout is kept."""
        carried = np.broadcast_to(self._returns, rewards.shape[1:]).copy()
        returns, self._returns = self._sum_over_time(rewards, self._discount * continues, carried)
        return returns

    def _add(self, returns: np.ndarray) -> None:
        mean = float(returns.mean()) if returns.size else 0.0
        own = Moments(returns.size, mean, float(np.square(returns - mean).sum()))
        for batch in everyones(own):
            if batch.count:
                self._moments = merged(self._moments, batch)

    def state_dict(self) -> dict[str, Any]:
        return {
            "returns": torch.from_numpy(np.atleast_1d(self._returns).copy()),
            "count": self._moments.count,
            "mean": self._moments.mean,
            "squared_deviations": self._moments.squared_deviations,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._returns = state["returns"].cpu().numpy().copy()
        self._moments = Moments(int(state["count"]), float(state["mean"]), float(state["squared_deviations"]))
