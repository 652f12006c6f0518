"""Sums over time, compiled."""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from swell.kernels.jit import kernel
from swell.kernels.layers import ZERO


@kernel
def rollout_returns(
    rewards: np.ndarray,
    values: np.ndarray,
    last_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_values: np.ndarray,
    final_indices: np.ndarray,
    discount: float,
    trace_decay: float,
    cuts_end: bool,
    returns: np.ndarray,
) -> None:
    """As `learning/targets.py`: G_t = r_t + γ_t [ (1 − λ_t) v_{t+1} + λ_t G_{t+1} ], all [T, N].

    `cuts_end`: a time limit counts as an end of its own, and does not bootstrap. `returns` hold the v_{t+1} first.
    """
    last, num_envs = rewards.shape[0] - 1, rewards.shape[1]
    returns[:last] = values[1:]
    returns[last] = last_values
    for place in range(final_indices.size):
        returns[final_indices[place] // num_envs, final_indices[place] % num_envs] = final_values[place]
    for env in range(num_envs):
        following = returns[last, env]
        for step in range(last, -1, -1):
            value = returns[step, env]
            is_cut = truncated[step, env]
            trace = ZERO if terminated[step, env] or is_cut else np.float32(trace_decay)
            mixed = value + trace * (following - value)
            bootstraps = not (terminated[step, env] or (cuts_end and is_cut))
            following = rewards[step, env] + (np.float32(discount) * mixed if bootstraps else ZERO * mixed)
            returns[step, env] = following


@kernel
def discounted_returns(returns: np.ndarray, discounts: np.ndarray, carried: np.ndarray) -> None:
    """Running sums in place: ret_t = r_t + γ_{t−1} ret_{t−1}, [T, N] in float64; `carried` [N] goes in and on."""
    for env in range(returns.shape[1]):
        total = np.float64(carried[env])
        for step in range(returns.shape[0]):
            total += returns[step, env]
            returns[step, env] = total
            total *= discounts[step, env]
        carried[env] = total
