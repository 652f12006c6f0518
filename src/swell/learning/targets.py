"""Learning targets: tensors in, tensors out."""

from collections.abc import Callable

import torch
from torch import Tensor

from swell.config.learners import ReturnSettings
from swell.types import Rollout

SumOverTime = Callable[[Rollout, Tensor, Tensor, Tensor, Tensor, ReturnSettings], Tensor]
"""`bootstrapped_returns`, or a kernel that does the same."""


@torch.no_grad()
def rollout_returns(
    rollout: Rollout,
    rewards: Tensor,
    values: Tensor,
    value_of: Callable[[Tensor], Tensor],
    settings: ReturnSettings,
    sum_over_time: SumOverTime | None = None,
) -> Tensor:
    """λ-returns [T, N] of a rollout; less the values they are the generalized advantages (arXiv 1506.02438).

    `rewards` and `values` are [T, N], those of the states that were acted on; `value_of` says the value of observations
    [B, ...]. A time limit bootstraps from the observation it cut off; termination does not bootstrap.
    """
    finals = rollout.final_observations
    final_values = value_of(finals) if finals.shape[0] else torch.empty(0, device=finals.device)
    last_values = value_of(rollout.observations[-1])
    return (sum_over_time or bootstrapped_returns)(rollout, rewards, values, last_values, final_values, settings)


def bootstrapped_returns(
    rollout: Rollout,
    rewards: Tensor,
    values: Tensor,
    last_values: Tensor,
    final_values: Tensor,
    settings: ReturnSettings,
) -> Tensor:
    """λ-returns [T, N], where the values of all states are known: `last_values` [N] of those that the rollout led to,
    `final_values` [K] of those that a time limit cut off.
    """
    terminated = rollout.terminated
    if settings.truncation_is_termination:
        terminated = terminated | rollout.truncated
    next_values = successor_values(values, last_values, final_values, rollout.final_indices)
    discounts = settings.discount * (~terminated).to(rewards.dtype)
    traces = settings.trace_decay * (~(rollout.terminated | rollout.truncated)).to(rewards.dtype)
    return lambda_returns(rewards, discounts, next_values, traces)


def lambda_returns(rewards: Tensor, discounts: Tensor, next_values: Tensor, traces: Tensor) -> Tensor:
    """λ-returns over a rollout; all tensors are [T, N].

        G_t = r_t + γ_t [ (1 − λ_t) v_{t+1} + λ_t G_{t+1} ],   G_T = v_T

    `next_values[t]` is v_{t+1}, the value of the state that step t led to. A zero trace cuts the sum (the episode
    ended); a zero discount also drops the value (it terminated).
    """
    returns = torch.empty_like(rewards)
    following = next_values[-1]
    for step in range(rewards.shape[0] - 1, -1, -1):
        mixed = torch.lerp(next_values[step], following, traces[step])
        following = torch.addcmul(rewards[step], discounts[step], mixed, out=returns[step])
    return returns


def successor_values(values: Tensor, last_values: Tensor, final_values: Tensor, final_indices: Tensor) -> Tensor:
    """v_{t+1} for every row of a rollout, [T, N].

    The successor of row t is row t + 1, of the last row `last_values` [N], and of a truncated episode its own last
    observation, `final_values` [K] at the flat rows `final_indices` [K].
    """
    successors = torch.cat([values[1:], last_values.unsqueeze(0)])
    successors.view(-1)[final_indices] = final_values
    return successors
