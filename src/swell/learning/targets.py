"""Learning targets: tensors in, tensors out."""

import torch
from torch import Tensor


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
