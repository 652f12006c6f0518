"""Adam and RAdam, compiled: the formulas of `FlatAdam` in `learning/optimize.py`."""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false

import math
from typing import NamedTuple

import numpy as np

from swell.kernels.jit import kernel


class Optimizer(NamedTuple):
    """Adam's memory, and what it is told for this update."""

    mean: np.ndarray
    square: np.ndarray
    numbers: np.ndarray
    """float64: rate, β₁, β₂, ε, steps so far, whether it rectifies, the largest norm."""


STEPS = 4
"""The place of the steps in the numbers of an optimizer."""


@kernel
def adam(weights: np.ndarray, gradient: np.ndarray, optimizer: Optimizer, number: int, norm: float) -> None:
    """Step `number` of all, with the gradient clipped to the largest norm; the arrays may be a part of all weights."""
    numbers = optimizer.numbers
    rate, beta1, beta2, epsilon, steps = numbers[0], numbers[1], numbers[2], numbers[3], float(number)
    rectifies, largest_norm = numbers[5] != 0.0, numbers[6]
    shrink = np.float32(largest_norm / norm if norm > largest_norm else 1.0)
    first, second = 1.0 - beta1**steps, 1.0 - beta2**steps
    step, is_momentum = rate / first, False
    if rectifies:
        longest = 2.0 / (1.0 - beta2) - 1.0
        reach = longest - 2.0 * steps * beta2**steps / second
        is_momentum = reach <= 5.0
        if not is_momentum:
            step *= math.sqrt((reach - 4.0) * (reach - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * reach))
            epsilon /= math.sqrt(second)
    step, epsilon, root = np.float32(step), np.float32(epsilon), np.float32(1.0 / math.sqrt(second))
    beta1, rest1 = np.float32(beta1), np.float32(1.0 - beta1)
    beta2, rest2 = np.float32(beta2), np.float32(1.0 - beta2)
    means, squares = optimizer.mean, optimizer.square
    if is_momentum:
        for place in range(weights.size):
            slope = gradient[place] * shrink
            means[place] = beta1 * means[place] + rest1 * slope
            squares[place] = beta2 * squares[place] + rest2 * slope * slope
            weights[place] -= step * means[place]
        return
    for place in range(weights.size):
        slope = gradient[place] * shrink
        mean = beta1 * means[place] + rest1 * slope
        square = beta2 * squares[place] + rest2 * slope * slope
        means[place], squares[place] = mean, square
        weights[place] -= step * mean / (np.float32(math.sqrt(square)) * root + epsilon)
