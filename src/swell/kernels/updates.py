"""Whole passes of gradient steps, compiled: PPO's objective, PQN's, and Adam.

Each does what the readable form does (`algorithms/ppo.py`, `algorithms/pqn.py`, `learning/losses.py`,
`learning/optimize.py`), but for rounding; tests hold it to that form in float64.
"""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false

import math
from typing import NamedTuple

import numpy as np

from swell.kernels.jit import kernel
from swell.kernels.lanes import APART, DONE, OVER, POSTED, Lanes, claims, is_posted, lane_of, wait_until_done, write
from swell.kernels.layers import ONE, OUT, OUTPUTS, ZERO, Network, Room, backward, forward, length, rows_of

SMALLEST_SPREAD = 1e-8
"""As in `learning/advantages.py`."""
TWO = np.float32(2.0)
HALF = np.float32(0.5)
HALF_LOG_TWO_PI = np.float32(0.5 * math.log(2.0 * math.pi))


class Optimizer(NamedTuple):
    """Adam's memory, and what it is told for this update."""

    mean: np.ndarray
    square: np.ndarray
    numbers: np.ndarray
    """float64: rate, β₁, β₂, ε, steps so far, whether it rectifies, the largest norm."""


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


STEPS = 4
"""The place of the steps in the numbers of an optimizer."""
LOSS, POLICY_LOSS, VALUE_LOSS, ENTROPY, APPROX_KL, CLIPPED = range(6)
"""The places of what is added up over rows."""
SUMS = 6


@kernel
def policy_passes(
    network: Network,
    room: Room,
    heads: Heads,
    optimizer: Optimizer,
    batch: PolicyRows,
    objective: Objective,
    lanes: Lanes,
    orders: np.ndarray,
    ends: np.ndarray,
    losses: np.ndarray,
    norms: np.ndarray,
) -> int:
    """One gradient step for each minibatch `order[ends[i − 1] : ends[i]]` of each order.

    Returns how many were done: fewer than there are if the next loss or gradient is not finite, in which case the
    weights are those before it. The sums of the last pass are left in the first lane.
    """
    step, count = 0, lanes.gradients.shape[0]
    for order in orders:
        lanes.sums[:] = 0.0
        start = 0
        for end in ends:
            minibatch = order[start:end]
            start = end
            if objective.normalises:
                lanes.moments[0], lanes.moments[1] = moments(batch.advantages, minibatch)
            step += 1
            lanes.sums[:, LOSS] = 0.0
            call_helpers(lanes, step)
            policy_lane(network, room, heads, batch, objective, lanes, minibatch, 0)
            for lane in range(1, count):
                if claims(lanes.desk, lane, step):
                    policy_lane(network, room, heads, batch, objective, lanes, minibatch, lane)
                else:
                    wait_until_done(lanes, lane, step)
            loss = lanes.sums[:, LOSS].sum() / minibatch.size
            if not takes_step(network, optimizer, lanes, loss, step - 1, losses, norms):
                write(lanes.desk, POSTED, OVER)
                return step - 1
        for lane in range(1, count):
            lanes.sums[0] += lanes.sums[lane]
    write(lanes.desk, POSTED, OVER)
    return step


@kernel
def help_policy_passes(
    network: Network,
    room: Room,
    heads: Heads,
    batch: PolicyRows,
    objective: Objective,
    lanes: Lanes,
    orders: np.ndarray,
    ends: np.ndarray,
    lane: int,
) -> None:
    """A helper's part of `policy_passes`."""
    step = 0
    for order in orders:
        start = 0
        for end in ends:
            step += 1
            if not is_posted(lanes.desk, step):
                return
            if claims(lanes.desk, lane, step):
                policy_lane(network, room, heads, batch, objective, lanes, order[start:end], lane)
                write(lanes.desk, lane * APART + DONE, step)
            start = end


@kernel
def policy_lane(
    network: Network,
    room: Room,
    heads: Heads,
    batch: PolicyRows,
    objective: Objective,
    lanes: Lanes,
    minibatch: np.ndarray,
    lane: int,
) -> None:
    """The gradient of a lane's share of a minibatch, and its sums."""
    rows = lane_of(minibatch, lane, lanes.gradients.shape[0])
    gradient, sums = lanes.gradients[lane], lanes.sums[lane]
    gradient[:] = ZERO
    share = ONE / np.float32(minibatch.size)
    mean, factor = (lanes.moments[0], lanes.moments[1]) if objective.normalises else (ZERO, ONE)
    at_once = even_part(rows.size, room.inputs.shape[0])
    for part in range(0, rows.size, at_once):
        chosen = rows[part : part + at_once]
        gather(batch, chosen, room)
        forward(network, room, chosen.size)
        policy_slopes(network, room, heads, batch, objective, chosen, mean, factor, share, gradient, sums)
        backward(network, room, chosen.size, gradient, part > 0)


@kernel
def call_helpers(lanes: Lanes, step: int) -> None:
    """Tells them of a step, unless the leader does it alone because they were late."""
    count = lanes.gradients.shape[0]
    if count == 1:
        return
    if lanes.rest[0] > 0:
        lanes.rest[0] -= 1
        return
    write(lanes.desk, POSTED, step)


@kernel
def takes_step(
    network: Network,
    optimizer: Optimizer,
    lanes: Lanes,
    loss: float,
    number: int,
    losses: np.ndarray,
    norms: np.ndarray,
) -> bool:
    """A step of Adam with the gradients of all lanes, if they and the loss are finite."""
    gradient = lanes.gradients[0]
    for lane in range(1, lanes.gradients.shape[0]):
        others = lanes.gradients[lane]
        for place in range(gradient.size):
            gradient[place] += others[place]
    norm = length(gradient)
    losses[number], norms[number] = loss, norm
    if not (abs(loss) < math.inf and norm < math.inf):
        return False
    adam(network.weights, gradient, optimizer, norm)
    return True


@kernel
def even_part(size: int, most: int) -> int:
    """So many at a time that no part is larger than the room, and none much smaller than the others."""
    parts = (size + most - 1) // most
    return (size + parts - 1) // parts


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
def gather(batch: PolicyRows | QRows, chosen: np.ndarray, room: Room) -> None:
    for place in range(chosen.size):
        for column in range(batch.inputs.shape[1]):
            room.inputs[place, column] = batch.inputs[chosen[place], column]
        for column in range(batch.pixels.shape[1]):
            room.pixels[place, column] = batch.pixels[chosen[place], column]


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
    """Adds up the losses of the chosen rows; their slopes, times `share`, go into the room, or into the gradient."""
    count = chosen.size
    policy, value = network.layers[heads.policy], network.layers[heads.value]
    parameters = rows_of(room.activations, policy[OUT], policy[OUTPUTS], count)
    slopes = rows_of(room.slopes, policy[OUT], policy[OUTPUTS], count)
    values = rows_of(room.activations, value[OUT], 1, count)
    value_slopes = rows_of(room.slopes, value[OUT], 1, count)
    clip, value_clip = np.float32(objective.clip_range), np.float32(objective.value_clip_range)
    bonus, weight = np.float32(objective.entropy_coefficient), np.float32(objective.value_coefficient)
    log_std = network.weights[max(heads.log_std, 0) :]
    log_std_gradient = gradient[max(heads.log_std, 0) :]
    for place in range(count):
        row = chosen[place]
        advantage = (batch.advantages[row] - mean) * factor
        if heads.log_std >= 0:
            log_prob, entropy = gaussian(parameters[place], log_std, batch.points[row])
        else:
            log_prob, entropy = choices(parameters[place], heads.sizes, batch.choices[row])
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
        value_loss, value_slope = value_error(values[place, 0], batch.values[row], batch.returns[row], value_clip)
        value_slopes[place, 0] = share * weight * value_slope
        policy_loss = clipped if clipped > unclipped else unclipped  # NaN stays
        sums[POLICY_LOSS] += policy_loss
        sums[VALUE_LOSS] += value_loss
        sums[ENTROPY] += entropy
        sums[APPROX_KL] += (ratio - ONE) - log_ratio
        sums[CLIPPED] += abs(ratio - ONE) > clip
        sums[LOSS] += policy_loss + weight * value_loss - bonus * entropy


@kernel
def choices(logits: np.ndarray, sizes: np.ndarray, actions: np.ndarray) -> tuple[float, float]:
    """log π(a) and the entropy of independent choices; `logits` become log-probabilities."""
    log_prob, entropy, start = ZERO, ZERO, 0
    for part in range(sizes.size):
        end = start + sizes[part]
        largest = logits[start]
        for place in range(start + 1, end):
            largest = max(largest, logits[place])
        total = ZERO
        for place in range(start, end):
            total += np.float32(math.exp(logits[place] - largest))
        total = largest + np.float32(math.log(total))
        for place in range(start, end):
            logits[place] -= total
            entropy -= np.float32(math.exp(logits[place])) * logits[place]
        log_prob += logits[start + actions[part]]
        start = end
    return log_prob, entropy


@kernel
def choice_slopes(
    log_probs: np.ndarray, sizes: np.ndarray, actions: np.ndarray, slope: float, bonus: float, slopes: np.ndarray
) -> None:
    """slope · (1{i = a} − p_i) + bonus · p_i (log p_i + H)."""
    start = 0
    for part in range(sizes.size):
        end = start + sizes[part]
        entropy = ZERO
        for place in range(start, end):
            slopes[place] = np.float32(math.exp(log_probs[place]))
            entropy -= slopes[place] * log_probs[place]
        for place in range(start, end):
            chance = slopes[place]
            slopes[place] = chance * (bonus * (log_probs[place] + entropy) - slope)
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
def q_passes(
    network: Network,
    room: Room,
    head: int,
    optimizer: Optimizer,
    batch: QRows,
    coefficient: float,
    lanes: Lanes,
    orders: np.ndarray,
    ends: np.ndarray,
    losses: np.ndarray,
    norms: np.ndarray,
) -> int:
    """As `policy_passes`, for coefficient · (Q(s, a) − G)²."""
    step = 0
    for order in orders:
        start = 0
        for end in ends:
            minibatch = order[start:end]
            start = end
            step += 1
            lanes.sums[:] = 0.0
            call_helpers(lanes, step)
            q_lane(network, room, head, batch, coefficient, lanes, minibatch, 0)
            for lane in range(1, lanes.gradients.shape[0]):
                if claims(lanes.desk, lane, step):
                    q_lane(network, room, head, batch, coefficient, lanes, minibatch, lane)
                else:
                    wait_until_done(lanes, lane, step)
            loss = lanes.sums[:, LOSS].sum() * coefficient / minibatch.size
            if not takes_step(network, optimizer, lanes, loss, step - 1, losses, norms):
                write(lanes.desk, POSTED, OVER)
                return step - 1
    write(lanes.desk, POSTED, OVER)
    return step


@kernel
def help_q_passes(
    network: Network,
    room: Room,
    head: int,
    batch: QRows,
    coefficient: float,
    lanes: Lanes,
    orders: np.ndarray,
    ends: np.ndarray,
    lane: int,
) -> None:
    """A helper's part of `q_passes`."""
    step = 0
    for order in orders:
        start = 0
        for end in ends:
            step += 1
            if not is_posted(lanes.desk, step):
                return
            if claims(lanes.desk, lane, step):
                q_lane(network, room, head, batch, coefficient, lanes, order[start:end], lane)
                write(lanes.desk, lane * APART + DONE, step)
            start = end


@kernel
def q_lane(
    network: Network,
    room: Room,
    head: int,
    batch: QRows,
    coefficient: float,
    lanes: Lanes,
    minibatch: np.ndarray,
    lane: int,
) -> None:
    """The gradient of a lane's share of a minibatch, and the sum of its squared errors."""
    rows = lane_of(minibatch, lane, lanes.gradients.shape[0])
    gradient, layer = lanes.gradients[lane], network.layers[head]
    gradient[:] = ZERO
    share = np.float32(coefficient / minibatch.size)
    at_once = even_part(rows.size, room.inputs.shape[0])
    for part in range(0, rows.size, at_once):
        chosen = rows[part : part + at_once]
        gather(batch, chosen, room)
        forward(network, room, chosen.size)
        q_values = rows_of(room.activations, layer[OUT], layer[OUTPUTS], chosen.size)
        slopes = rows_of(room.slopes, layer[OUT], layer[OUTPUTS], chosen.size)
        slopes[:] = ZERO
        for place in range(chosen.size):
            action = batch.actions[chosen[place]]
            error = q_values[place, action] - batch.targets[chosen[place]]
            slopes[place, action] = TWO * share * error
            lanes.sums[lane, LOSS] += error * error
        backward(network, room, chosen.size, gradient, part > 0)


@kernel
def adam(weights: np.ndarray, gradient: np.ndarray, optimizer: Optimizer, norm: float) -> None:
    """A step of Adam, or of RAdam, with the gradient clipped to the largest norm; formulas in `FlatAdam`."""
    numbers = optimizer.numbers
    numbers[STEPS] += 1.0
    rate, beta1, beta2, epsilon, steps = numbers[0], numbers[1], numbers[2], numbers[3], numbers[STEPS]
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
