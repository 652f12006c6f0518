"""The objectives of PPO and PQN, compiled: losses of some rows, and the slopes that a backward pass starts from.

Each is the readable form (`algorithms/ppo.py`, `algorithms/pqn.py`, `learning/losses.py`) but for rounding; tests hold
it to that form in float64.
"""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false

import math
from typing import NamedTuple

import numpy as np

from swell.kernels.jit import kernel
from swell.kernels.layers import ONE, OUT, OUTPUTS, ZERO, Network, Room, rows_of
from swell.kernels.views import vector

SMALLEST_SPREAD = 1e-8
"""As in `learning/advantages.py`."""
TWO = np.float32(2.0)
HALF = np.float32(0.5)
HALF_LOG_TWO_PI = np.float32(0.5 * math.log(2.0 * math.pi))

LOSS, POLICY_LOSS, VALUE_LOSS, ENTROPY, APPROX_KL, CLIPPED = range(6)
"""The places of what is added up over rows."""
SUMS = 6


class Heads(NamedTuple):
    """Where a policy and a value come out of a network."""

    policy: int
    """The layer of the policy's parameters; of the means, for continuous actions."""
    value: int
    log_std: int
    """Where it starts in the flat vector; −1 for choices."""
    sizes: np.ndarray
    """int64 [K], of the choices."""


class PolicyRows(NamedTuple):
    """What PPO learns from, one row a transition."""

    inputs: np.ndarray
    pixels: np.ndarray
    choices: np.ndarray
    """int64 [R, K], of no width for continuous actions."""
    points: np.ndarray
    """float32 [R, d], of no width for choices."""
    log_probs: np.ndarray
    values: np.ndarray
    advantages: np.ndarray
    returns: np.ndarray


class Objective(NamedTuple):
    """The numbers of PPO's objective."""

    clip_range: float
    value_clip_range: float
    """∞ does not clip."""
    value_coefficient: float
    entropy_coefficient: float
    normalises: bool
    """Whether the advantages of each minibatch are brought to mean 0 and deviation 1."""


class QRows(NamedTuple):
    """What PQN learns from, one row a transition."""

    inputs: np.ndarray
    pixels: np.ndarray
    actions: np.ndarray
    targets: np.ndarray


@kernel
def gather(batch: PolicyRows | QRows, chosen: np.ndarray, room: Room) -> None:
    for place in range(chosen.size):
        for column in range(batch.inputs.shape[1]):
            room.inputs[place, column] = batch.inputs[chosen[place], column]
        for column in range(batch.pixels.shape[1]):
            room.pixels[place, column] = batch.pixels[chosen[place], column]


@kernel
def moments(numbers: np.ndarray, chosen: np.ndarray) -> tuple[float, float]:
    """Mean and reciprocal of the unbiased deviation of the chosen numbers; a single one is only centred."""
    mean = 0.0
    for row in chosen:
        mean += numbers[row]
    mean /= chosen.size
    if chosen.size < 2:
        return np.float32(mean), ONE
    square = 0.0
    for row in chosen:
        square += (numbers[row] - mean) ** 2
    return np.float32(mean), np.float32(1.0 / (math.sqrt(square / (chosen.size - 1)) + SMALLEST_SPREAD))


@kernel
def policy_slopes(
    network: Network,
    room: Room,
    heads: Heads,
    batch: PolicyRows,
    objective: Objective,
    chosen: np.ndarray,
    mean: float,
    factor: float,
    share: float,
    gradient: np.ndarray,
    sums: np.ndarray,
) -> None:
    """Adds up the policy's losses on the chosen rows; slopes, times `share`, go into the room or the gradient."""
    count, policy = chosen.size, network.layers[heads.policy]
    parameters = rows_of(room.activations, policy[OUT], policy[OUTPUTS], count)
    slopes = rows_of(room.slopes, policy[OUT], policy[OUTPUTS], count)
    clip, bonus = np.float32(objective.clip_range), np.float32(objective.entropy_coefficient)
    start = max(heads.log_std, 0)
    log_std = vector(network.weights, start, network.weights.size - start)
    log_std_gradient = vector(gradient, start, gradient.size - start)
    for place in range(count):
        row = chosen[place]
        advantage = (batch.advantages[row] - mean) * factor
        if heads.log_std >= 0:
            log_prob, entropy = gaussian(parameters[place], log_std, batch.points[row])
        else:
            log_prob, entropy = choices(parameters[place], heads.sizes, batch.choices[row], slopes[place])
        log_ratio = log_prob - batch.log_probs[row]
        ratio = np.float32(math.exp(log_ratio))
        unclipped = -ratio * advantage
        clipped = -min(max(ratio, ONE - clip), ONE + clip) * advantage
        slope = share * unclipped if unclipped >= clipped else ZERO * unclipped
        if heads.log_std >= 0:
            gaussian_slopes(parameters[place], log_std, batch.points[row], slope, share * bonus, slopes[place])
            add_log_std_slopes(parameters[place], log_std, batch.points[row], slope, share * bonus, log_std_gradient)
        else:
            choice_slopes(parameters[place], heads.sizes, batch.choices[row], slope, share * bonus, slopes[place])
        policy_loss = clipped if clipped > unclipped else unclipped  # NaN stays
        sums[POLICY_LOSS] += policy_loss
        sums[ENTROPY] += entropy
        sums[APPROX_KL] += (ratio - ONE) - log_ratio
        sums[CLIPPED] += abs(ratio - ONE) > clip
        sums[LOSS] += policy_loss - bonus * entropy


@kernel
def choices(logits: np.ndarray, sizes: np.ndarray, actions: np.ndarray, chances: np.ndarray) -> tuple[float, float]:
    """log π(a) and the entropy of independent choices; `logits` become log-probabilities."""
    log_prob, entropy, start = ZERO, ZERO, 0
    for part in range(sizes.size):
        end = start + sizes[part]
        largest = logits[start]
        for place in range(start + 1, end):
            largest = max(largest, logits[place])
        total = ZERO
        for place in range(start, end):
            chances[place] = np.float32(math.exp(logits[place] - largest))
            total += chances[place]
        constant, norm = largest + np.float32(math.log(total)), ONE / total
        for place in range(start, end):
            chances[place] *= norm
            logits[place] -= constant
            entropy -= chances[place] * logits[place]
        log_prob += logits[start + actions[part]]
        start = end
    return log_prob, entropy


@kernel
def choice_slopes(
    log_probs: np.ndarray, sizes: np.ndarray, actions: np.ndarray, slope: float, bonus: float, slopes: np.ndarray
) -> None:
    """slope · (1{i = a} − p_i) + bonus · p_i (log p_i + H), where `slopes` are the chances p before."""
    start = 0
    for part in range(sizes.size):
        end = start + sizes[part]
        entropy = ZERO
        for place in range(start, end):
            entropy -= slopes[place] * log_probs[place]
        for place in range(start, end):
            slopes[place] *= bonus * (log_probs[place] + entropy) - slope
        slopes[start + actions[part]] += slope
        start = end


@kernel
def gaussian(means: np.ndarray, log_std: np.ndarray, point: np.ndarray) -> tuple[float, float]:
    """log π(a) and the entropy of independent normal components."""
    log_prob, entropy = ZERO, ZERO
    for place in range(means.size):
        distance = (point[place] - means[place]) * np.float32(math.exp(-log_std[place]))
        log_prob -= HALF * distance * distance + log_std[place] + HALF_LOG_TWO_PI
        entropy += log_std[place] + HALF + HALF_LOG_TWO_PI
    return log_prob, entropy


@kernel
def gaussian_slopes(
    means: np.ndarray, log_std: np.ndarray, point: np.ndarray, slope: float, bonus: float, slopes: np.ndarray
) -> None:
    """slope · (a − μ) / σ²."""
    for place in range(means.size):
        precision = np.float32(math.exp(-log_std[place]))
        slopes[place] = slope * (point[place] - means[place]) * precision * precision


@kernel
def add_log_std_slopes(
    means: np.ndarray, log_std: np.ndarray, point: np.ndarray, slope: float, bonus: float, gradient: np.ndarray
) -> None:
    """slope · (((a − μ) / σ)² − 1) − bonus."""
    for place in range(means.size):
        distance = (point[place] - means[place]) * np.float32(math.exp(-log_std[place]))
        gradient[place] += slope * (distance * distance - ONE) - bonus


@kernel
def value_slopes(
    network: Network,
    room: Room,
    heads: Heads,
    batch: PolicyRows,
    objective: Objective,
    chosen: np.ndarray,
    share: float,
    sums: np.ndarray,
) -> None:
    """As `policy_slopes`, for the values."""
    count, layer = chosen.size, network.layers[heads.value]
    values = vector(room.activations, layer[OUT] * count, count)
    slopes = vector(room.slopes, layer[OUT] * count, count)
    clip, weight = np.float32(objective.value_clip_range), np.float32(objective.value_coefficient)
    for place in range(count):
        row = chosen[place]
        loss, slope = value_error(values[place], batch.values[row], batch.returns[row], clip)
        slopes[place] = share * weight * slope
        sums[VALUE_LOSS] += loss
        sums[LOSS] += weight * loss


@kernel
def value_error(value: float, old_value: float, target: float, clip_range: float) -> tuple[float, float]:
    """The squared error, clipped around the old value, and its slope.

    It asks for the distance first: V_old + (V − V_old) need not be V in float32.
    """
    error = value - target
    change = value - old_value
    if abs(change) <= clip_range or change != change:  # NaN goes on, and is seen in the loss
        return error * error, TWO * error
    clipped = old_value + (clip_range if change > ZERO else -clip_range) - target
    if error * error >= clipped * clipped:
        return error * error, TWO * error
    return clipped * clipped, ZERO


@kernel
def q_slopes(network: Network, room: Room, head: int, batch: QRows, chosen: np.ndarray, share: float) -> float:
    """The sum of (Q(s, a) − G)² over the chosen rows; its slopes, times `share`, go into the room."""
    count, layer = chosen.size, network.layers[head]
    q_values = rows_of(room.activations, layer[OUT], layer[OUTPUTS], count)
    slopes = rows_of(room.slopes, layer[OUT], layer[OUTPUTS], count)
    slopes[:] = ZERO
    total = 0.0
    for place in range(count):
        action = batch.actions[chosen[place]]
        error = q_values[place, action] - batch.targets[chosen[place]]
        slopes[place, action] = TWO * share * error
        total += error * error
    return total
