"""Whole passes of gradient steps in one call, whose threads each take a share of the rows of every minibatch."""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false

import math

import numpy as np

from swell.kernels.adam import STEPS, Optimizer, adam
from swell.kernels.jit import kernel
from swell.kernels.lanes import (
    DONE,
    OVER,
    POSTED,
    Lanes,
    call_helpers,
    claims,
    lane_of,
    place_of,
    reaches,
    wait_until_done,
    write,
)
from swell.kernels.layers import ONE, ZERO, Network, Room, backward, forward, squared_length
from swell.kernels.objectives import (
    LOSS,
    Heads,
    Objective,
    PolicyRows,
    QRows,
    gather,
    moments,
    policy_slopes,
    q_slopes,
    value_slopes,
)


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
    """One gradient step of PPO for each minibatch `order[ends[i − 1] : ends[i]]` of each order.

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
            call_helpers(lanes.desk, lanes.rest, count, step)
            policy_lane(network, room, heads, batch, objective, lanes, minibatch, 0)
            for lane in range(1, count):
                if claims(lanes.desk, lane, step):
                    policy_lane(network, room, heads, batch, objective, lanes, minibatch, lane)
                else:
                    wait_until_done(lanes.desk, lanes.rest, lane, step)
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
            if not reaches(lanes.desk, POSTED, step):
                return
            if claims(lanes.desk, lane, step):
                policy_lane(network, room, heads, batch, objective, lanes, order[start:end], lane)
                write(lanes.desk, place_of(lane, DONE), step)
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
        value_slopes(network, room, heads, batch, objective, chosen, share, sums)
        backward(network, room, chosen.size, gradient, part > 0)


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
    norm = math.sqrt(squared_length(gradient))
    losses[number], norms[number] = loss, norm
    if not (abs(loss) < math.inf and norm < math.inf):
        return False
    optimizer.numbers[STEPS] += 1.0
    adam(network.weights, gradient, optimizer, optimizer.numbers[STEPS], norm)
    return True


@kernel
def even_part(size: int, most: int) -> int:
    """So many at a time that no part is larger than the room, and none much smaller than the others."""
    parts = (size + most - 1) // most
    return (size + parts - 1) // parts


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
    step, count = 0, lanes.gradients.shape[0]
    for order in orders:
        start = 0
        for end in ends:
            minibatch = order[start:end]
            start = end
            step += 1
            lanes.sums[:] = 0.0
            call_helpers(lanes.desk, lanes.rest, count, step)
            q_lane(network, room, head, batch, coefficient, lanes, minibatch, 0)
            for lane in range(1, count):
                if claims(lanes.desk, lane, step):
                    q_lane(network, room, head, batch, coefficient, lanes, minibatch, lane)
                else:
                    wait_until_done(lanes.desk, lanes.rest, lane, step)
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
            if not reaches(lanes.desk, POSTED, step):
                return
            if claims(lanes.desk, lane, step):
                q_lane(network, room, head, batch, coefficient, lanes, order[start:end], lane)
                write(lanes.desk, place_of(lane, DONE), step)
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
    gradient = lanes.gradients[lane]
    gradient[:] = ZERO
    share = np.float32(coefficient / minibatch.size)
    at_once = even_part(rows.size, room.inputs.shape[0])
    for part in range(0, rows.size, at_once):
        chosen = rows[part : part + at_once]
        gather(batch, chosen, room)
        forward(network, room, chosen.size)
        lanes.sums[lane, LOSS] += q_slopes(network, room, head, batch, chosen, share)
        backward(network, room, chosen.size, gradient, part > 0)
