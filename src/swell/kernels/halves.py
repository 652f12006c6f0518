"""PPO's gradient steps where the policy and the values have networks of their own: two halves that meet once a step.

The halves share no weight, so each is a chain of work by itself: gradient, Adam, gradient, Adam, … They need each other
only for the norm that both gradients are clipped by. The leading thread goes along the policy's chain. That of the
values is a list of tasks, each of which is done by whoever claims it first: the helper, or the leader where it comes to
need one that nobody has begun. So a helper that does not come costs nothing, and one that does brings weights and
gradients that stay in its own core's cache.
"""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false

import math
from typing import NamedTuple

import numpy as np

from swell.kernels.adam import STEPS, Optimizer, adam
from swell.kernels.jit import kernel
from swell.kernels.lanes import (
    APART,
    DONE,
    OVER,
    POSTED,
    call_helpers,
    claims,
    place_of,
    reaches,
    read,
    wait_until_done,
    write,
)
from swell.kernels.layers import ONE, ZERO, Network, Room, backward, forward, squared_length
from swell.kernels.objectives import (
    LOSS,
    SUMS,
    Heads,
    Objective,
    PolicyRows,
    gather,
    moments,
    policy_slopes,
    value_slopes,
)
from swell.kernels.updates import even_part

POLICY, VALUE = 0, 1
MET = 3
"""The place on the desk of the newest step whose gradient the policy has."""
CHAIN = 1
"""The lane of the values' tasks. Number 2 s − 1 is the gradient of step s, number 2 s its step of Adam."""


class Half(NamedTuple):
    """A network for the policy alone, or for the values alone."""

    network: Network
    heads: Heads
    places: np.ndarray
    """int64 [S, 2], from where to where its weights are in the flat vector."""


class Meeting(NamedTuple):
    """What the two threads of an update share."""

    desk: np.ndarray
    gradient: np.ndarray
    """float32 [P]; each half writes its own places."""
    steps: np.ndarray
    """float64 [steps, 2, 2], loss and squared norm of each half at each step."""
    sums: np.ndarray
    """float64 [2, SUMS], over the rows of the last pass."""
    rest: np.ndarray
    """As in `Lanes`."""


def make_meeting(size: int, steps: int, rest: np.ndarray) -> Meeting:
    """For one update; see `make_lanes`."""
    desk = np.zeros(2 * APART, np.int64)
    return Meeting(desk, np.zeros(size, np.float32), np.zeros((steps, 2, 2)), np.zeros((2, SUMS)), rest)


@kernel
def dual_passes(
    policy: Half,
    value: Half,
    policy_room: Room,
    value_room: Room,
    optimizer: Optimizer,
    batch: PolicyRows,
    objective: Objective,
    meeting: Meeting,
    orders: np.ndarray,
    ends: np.ndarray,
    lanes: int,
    losses: np.ndarray,
    norms: np.ndarray,
) -> int:
    """As `updates.policy_passes`; the sums of the last pass are left in those of the policy."""
    desk, steps = meeting.desk, losses.size
    for step in range(1, steps + 1):
        call_helpers(desk, meeting.rest, lanes, step)
        half_gradient(policy, policy_room, batch, objective, meeting, orders, ends, step, POLICY)
        write(desk, MET, step)
        go_along(value, value_room, optimizer, batch, objective, meeting, orders, ends, 2 * step - 1)
        losses[step - 1], norms[step - 1] = totals(meeting, step)
        if not is_finite(meeting, step):
            write(desk, POSTED, OVER)
            optimizer.numbers[STEPS] += step - 1
            return step - 1
        half_adam(policy, optimizer, meeting, step)
    go_along(value, value_room, optimizer, batch, objective, meeting, orders, ends, 2 * steps)
    write(desk, POSTED, OVER)
    meeting.sums[POLICY] += meeting.sums[VALUE]
    optimizer.numbers[STEPS] += steps
    return steps


@kernel
def help_dual_passes(
    value: Half,
    room: Room,
    optimizer: Optimizer,
    batch: PolicyRows,
    objective: Objective,
    meeting: Meeting,
    orders: np.ndarray,
    ends: np.ndarray,
) -> None:
    """A helper's part of `dual_passes`: whatever of the values' chain the leader has not begun."""
    desk = meeting.desk
    for task in range(1, 2 * orders.shape[0] * ends.size + 1):
        step = (task + 1) // 2
        if not (reaches(desk, POSTED, step) and reaches(desk, place_of(CHAIN, DONE), task - 1)):
            return
        if task % 2 == 0 and not reaches(desk, MET, step):
            return
        if claims(desk, CHAIN, task):
            do_task(value, room, optimizer, batch, objective, meeting, orders, ends, task)
            write(desk, place_of(CHAIN, DONE), task)


@kernel
def go_along(
    value: Half,
    room: Room,
    optimizer: Optimizer,
    batch: PolicyRows,
    objective: Objective,
    meeting: Meeting,
    orders: np.ndarray,
    ends: np.ndarray,
    last: int,
) -> None:
    """The leader's way along the values' chain, until that task is done by whomever."""
    done = read(meeting.desk, place_of(CHAIN, DONE))
    while done < last:
        done += 1
        if claims(meeting.desk, CHAIN, done):
            do_task(value, room, optimizer, batch, objective, meeting, orders, ends, done)
            write(meeting.desk, place_of(CHAIN, DONE), done)
        else:
            wait_until_done(meeting.desk, meeting.rest, CHAIN, done)


@kernel
def do_task(
    value: Half,
    room: Room,
    optimizer: Optimizer,
    batch: PolicyRows,
    objective: Objective,
    meeting: Meeting,
    orders: np.ndarray,
    ends: np.ndarray,
    task: int,
) -> None:
    step = (task + 1) // 2
    if task % 2:
        half_gradient(value, room, batch, objective, meeting, orders, ends, step, VALUE)
    elif is_finite(meeting, step):
        half_adam(value, optimizer, meeting, step)


@kernel
def half_gradient(
    half: Half,
    room: Room,
    batch: PolicyRows,
    objective: Objective,
    meeting: Meeting,
    orders: np.ndarray,
    ends: np.ndarray,
    step: int,
    side: int,
) -> None:
    """The gradient of a half on the minibatch of a step, with its loss and its norm."""
    number = (step - 1) % ends.size
    order = orders[(step - 1) // ends.size]
    minibatch = order[ends[number - 1] if number else 0 : ends[number]]
    gradient, sums = meeting.gradient, meeting.sums[side]
    if number == 0:
        sums[:] = 0.0
    sums[LOSS] = 0.0
    for place in range(half.places.shape[0]):
        gradient[half.places[place, 0] : half.places[place, 1]] = ZERO
    mean, factor = moments(batch.advantages, minibatch) if side == POLICY and objective.normalises else (ZERO, ONE)
    share = ONE / np.float32(minibatch.size)
    at_once = even_part(minibatch.size, room.inputs.shape[0])
    for part in range(0, minibatch.size, at_once):
        chosen = minibatch[part : part + at_once]
        gather(batch, chosen, room)
        forward(half.network, room, chosen.size)
        if side == POLICY:
            policy_slopes(half.network, room, half.heads, batch, objective, chosen, mean, factor, share, gradient, sums)
        else:
            value_slopes(half.network, room, half.heads, batch, objective, chosen, share, sums)
        backward(half.network, room, chosen.size, gradient, part > 0)
    square = 0.0
    for place in range(half.places.shape[0]):
        square += squared_length(gradient[half.places[place, 0] : half.places[place, 1]])
    meeting.steps[step - 1, side, 0] = sums[LOSS] / minibatch.size
    meeting.steps[step - 1, side, 1] = square


@kernel
def totals(meeting: Meeting, step: int) -> tuple[float, float]:
    """Loss and norm of both halves together."""
    parts = meeting.steps[step - 1]
    return parts[POLICY, 0] + parts[VALUE, 0], math.sqrt(parts[POLICY, 1] + parts[VALUE, 1])


@kernel
def is_finite(meeting: Meeting, step: int) -> bool:
    loss, norm = totals(meeting, step)
    return abs(loss) < math.inf and norm < math.inf


@kernel
def half_adam(half: Half, optimizer: Optimizer, meeting: Meeting, step: int) -> None:
    norm = totals(meeting, step)[1]
    for place in range(half.places.shape[0]):
        start, end = half.places[place]
        own = Optimizer(optimizer.mean[start:end], optimizer.square[start:end], optimizer.numbers)
        weights, gradient = half.network.weights[start:end], meeting.gradient[start:end]
        adam(weights, gradient, own, optimizer.numbers[STEPS] + step, norm)
