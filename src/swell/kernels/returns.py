"""Sums over time, compiled."""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from swell.kernels.jit import kernel


@kernel
def lambda_returns(
    rewards: np.ndarray, discounts: np.ndarray, next_values: np.ndarray, traces: np.ndarray, returns: np.ndarray
) -> None:
    """As `learning/targets.py`: G_t = r_t + γ_t [ (1 − λ_t) v_{t+1} + λ_t G_{t+1} ], all [T, N]."""
    last = rewards.shape[0] - 1
    for env in range(rewards.shape[1]):
        following = next_values[last, env]
        for step in range(last, -1, -1):
            value = next_values[step, env]
            mixed = value + traces[step, env] * (following - value)
            following = rewards[step, env] + discounts[step, env] * mixed
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
