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
    """Adds up the policy's losses on the chosen rows; slopes, times `share`, go into the room or the gradient.

    It goes through all rows at each step of the formula, since a few numbers of one row are too few to be vectorised.
    """
    count, policy = chosen.size, network.layers[heads.policy]
    parameters = rows_of(room.activations, policy[OUT], policy[OUTPUTS], count)
    slopes = rows_of(room.slopes, policy[OUT], policy[OUTPUTS], count)
    bonus = np.float32(objective.entropy_coefficient)
    log_probs, pulls = np.empty(count, np.float32), np.empty(count, np.float32)
    if heads.log_std >= 0:
        log_std = vector(network.weights, heads.log_std, policy[OUTPUTS])
        log_std_gradient = vector(gradient, heads.log_std, policy[OUTPUTS])
        precisions = np.exp(-log_std)
        entropy = count * gaussians(parameters, log_std, precisions, batch.points, chosen, log_probs)
        loss = clipped_surrogate(batch, objective, chosen, mean, factor, share, log_probs, pulls, sums)
        gaussian_slopes(parameters, precisions, batch.points, chosen, pulls, share * bonus, slopes, log_std_gradient)
    else:
        logs, chances = np.empty(slopes.T.shape, np.float32), np.empty(slopes.T.shape, np.float32)
        entropies = np.empty((heads.sizes.size, count), np.float32)
        choices(parameters, heads.sizes, batch.choices, chosen, logs, chances, entropies, log_probs)
        entropy = entropies.sum()
        loss = clipped_surrogate(batch, objective, chosen, mean, factor, share, log_probs, pulls, sums)
        choice_slopes(logs, chances, entropies, heads.sizes, batch.choices, chosen, pulls, share * bonus, slopes)
    sums[ENTROPY] += entropy
    sums[LOSS] += loss - bonus * entropy


@kernel
def clipped_surrogate(
    batch: PolicyRows,
    objective: Objective,
    chosen: np.ndarray,
    mean: float,
    factor: float,
    share: float,
    log_probs: np.ndarray,
    pulls: np.ndarray,
    sums: np.ndarray,
) -> float:
    """The sum of max(−ρ A, −clip(ρ) A) over the rows; `pulls` become its slopes by log π(a), times `share`."""
    clip = np.float32(objective.clip_range)
    total, distance, clipped_rows = 0.0, 0.0, 0
    for place in range(chosen.size):
        row = chosen[place]
        log_ratio = log_probs[place] - batch.log_probs[row]
        ratio = np.float32(math.exp(log_ratio))
        advantage = (batch.advantages[row] - mean) * factor
        unclipped = -ratio * advantage
        clipped = -min(max(ratio, ONE - clip), ONE + clip) * advantage
        pulls[place] = share * unclipped if unclipped >= clipped else ZERO * unclipped
        total += clipped if clipped > unclipped else unclipped  # NaN stays
        distance += (ratio - ONE) - log_ratio
        clipped_rows += abs(ratio - ONE) > clip
    sums[POLICY_LOSS] += total
    sums[APPROX_KL] += distance
    sums[CLIPPED] += clipped_rows
    return total


@kernel
def choices(
    logits: np.ndarray,
    sizes: np.ndarray,
    actions: np.ndarray,
    chosen: np.ndarray,
    logs: np.ndarray,
    chances: np.ndarray,
    entropies: np.ndarray,
    log_probs: np.ndarray,
) -> None:
    """log p_i and p_i [P, B] of independent choices, the entropy of each [K, B], and log π(a) [B]."""
    largest, totals = np.empty(log_probs.size, np.float32), np.empty(log_probs.size, np.float32)
    rows = range(log_probs.size)
    log_probs[:] = ZERO
    start = 0
    for part in range(sizes.size):
        end, entropy = start + sizes[part], entropies[part]
        largest[:] = logits[:, start]
        for column in range(start + 1, end):
            for row in rows:
                largest[row] = max(largest[row], logits[row, column])
        totals[:] = ZERO
        for column in range(start, end):
            for row in rows:
                logs[column, row] = logits[row, column] - largest[row]
                chances[column, row] = np.float32(math.exp(logs[column, row]))
                totals[row] += chances[column, row]
        for row in rows:
            largest[row] = np.float32(math.log(totals[row]))
            totals[row] = ONE / totals[row]
        entropy[:] = ZERO
        for column in range(start, end):
            for row in rows:
                chances[column, row] *= totals[row]
                logs[column, row] -= largest[row]
                entropy[row] -= chances[column, row] * logs[column, row]
        for row in rows:
            log_probs[row] += logs[start + actions[chosen[row], part], row]
        start = end


@kernel
def choice_slopes(
    logs: np.ndarray,
    chances: np.ndarray,
    entropies: np.ndarray,
    sizes: np.ndarray,
    actions: np.ndarray,
    chosen: np.ndarray,
    pulls: np.ndarray,
    bonus: float,
    slopes: np.ndarray,
) -> None:
    """pull · (1{i = a} − p_i) + bonus · p_i (log p_i + H)."""
    start = 0
    for part in range(sizes.size):
        end = start + sizes[part]
        for column in range(start, end):
            for row in range(chosen.size):
                push = bonus * (logs[column, row] + entropies[part, row]) - pulls[row]
                slopes[row, column] = chances[column, row] * push
        for row in range(chosen.size):
            slopes[row, start + actions[chosen[row], part]] += pulls[row]
        start = end


@kernel
def gaussians(
    means: np.ndarray,
    log_std: np.ndarray,
    precisions: np.ndarray,
    points: np.ndarray,
    chosen: np.ndarray,
    log_probs: np.ndarray,
) -> float:
    """log π(a) [B] of independent normal components; returns the entropy, which is that of every row."""
    scale = HALF_LOG_TWO_PI * np.float32(log_std.size) + log_std.sum()
    for row in range(chosen.size):
        square = ZERO
        for column in range(log_std.size):
            distance = (points[chosen[row], column] - means[row, column]) * precisions[column]
            square += distance * distance
        log_probs[row] = -HALF * square - scale
    return scale + HALF * np.float32(log_std.size)


@kernel
def gaussian_slopes(
    means: np.ndarray,
    precisions: np.ndarray,
    points: np.ndarray,
    chosen: np.ndarray,
    pulls: np.ndarray,
    bonus: float,
    slopes: np.ndarray,
    log_std_gradient: np.ndarray,
) -> None:
    """pull · (a − μ) / σ² by the means; pull · (((a − μ) / σ)² − 1) − bonus by log σ, added up over the rows."""
    for row in range(chosen.size):
        for column in range(precisions.size):
            distance = (points[chosen[row], column] - means[row, column]) * precisions[column]
            slopes[row, column] = pulls[row] * distance * precisions[column]
            log_std_gradient[column] += pulls[row] * (distance * distance - ONE) - bonus


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
