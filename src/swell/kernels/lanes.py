"""Threads that share each gradient step, and never wait for one that does not come.

A minibatch is cut into lanes of rows, each with a gradient of its own; the gradients are added in the order of the
lanes. The leading thread posts a step and takes the first lane. Any other is claimed by whoever is first: the helper
that it was meant for, or the leader, once it is through with its own. So where another process has the second core, the
leader does the work alone and loses an exchange of two numbers; the sums are the same whoever made them.
"""

# Annotations are for readers: numba knows float32 from float64 and a row from a number.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from swell.kernels.jit import kernel

POSTED = 0
"""The place on the desk of the number of the step that is to be done; −1 when there are no more."""
CLAIMED, DONE = 1, 2
"""Of a lane: the newest step that somebody has begun, and that the helper has finished."""
APART = 8
"""Lanes lie so many numbers apart: what two threads write shares no line of the cache."""
OVER = -1

POLLS_BEFORE_YIELDING = 400
"""About a microsecond: what a helper needs to see a step that was posted."""
LONGEST_WAIT = 2_000
"""Times that a helper lets others run, and sees no new step, before it goes home for this update."""
LATE = 200
"""Times that the leader lets others run before it takes a helper for one that has lost its core."""
LONGEST_REST = 2**14
"""Steps that the leader does alone, at the most, after a helper was late: the rest doubles each time."""

yield_core = types.ExternalFunction("sched_yield", types.int32())


class Lanes(NamedTuple):
    """What the threads of an update share."""

    desk: np.ndarray
    """int64 [lanes · APART]."""
    gradients: np.ndarray
    """float32 [lanes, P]."""
    sums: np.ndarray
    """float64 [lanes, S], whatever an objective adds up over its rows; the loss is the first."""
    moments: np.ndarray
    """float32 [2], of the advantages of this minibatch."""
    rest: np.ndarray
    """int64 [2], the leader's own, kept from update to update: steps that it still does alone, and the next rest."""


def make_lanes(count: int, size: int, sums: int, rest: np.ndarray) -> Lanes:
    """For one update. No desk is used twice: a helper that comes late finds the old one closed."""
    return Lanes(
        np.zeros(count * APART, np.int64),
        np.empty((count, size), np.float32),
        np.zeros((count, sums)),
        np.zeros(2, np.float32),
        rest,
    )


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Of the place of an array."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return cgutils.get_item_pointer(context, builder, signature.args[0], array, [arguments[1]])


@intrinsic
def read(context: Any, desk: Any, place: Any) -> Any:
    """What stands there now, and with it all that was written before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(context, builder, signature, arguments), "acquire", 8)

    return types.int64(desk, types.intp), generate


@intrinsic
def write(context: Any, desk: Any, place: Any, number: Any) -> Any:
    """For whoever reads it, together with all that was written before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _pointer(context, builder, signature, arguments), "release", 8)
        return context.get_dummy_value()

    return types.void(desk, types.intp, types.int64), generate


@intrinsic
def exchange(context: Any, desk: Any, place: Any, expected: Any, number: Any) -> Any:
    """Writes the number if the expected one stands there, for one of all who try; tells whether it was us."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature, arguments)
        result = builder.cmpxchg(pointer, arguments[2], arguments[3], "acq_rel", "acquire")
        return builder.zext(builder.extract_value(result, 1), ir.IntType(64))

    return types.int64(desk, types.intp, types.int64, types.int64), generate


@kernel
def place_of(lane: int, what: int) -> int:
    """On the desk."""
    return lane * APART + what


@kernel
def claims(desk: np.ndarray, lane: int, step: int) -> bool:
    return exchange(desk, place_of(lane, CLAIMED), step - 1, step) != 0


@kernel
def call_helpers(desk: np.ndarray, rest: np.ndarray, lanes: int, step: int) -> None:
    """Tells them of a step, unless the leader does it alone because they were late."""
    if lanes == 1:
        return
    if rest[0] > 0:
        rest[0] -= 1
        return
    write(desk, POSTED, step)


@kernel
def reaches(desk: np.ndarray, place: int, number: int) -> bool:
    """A helper's wait for a number at a place; False once all is over, or where nothing happens for long."""
    for _ in range(LONGEST_WAIT):
        for _ in range(POLLS_BEFORE_YIELDING):
            if read(desk, POSTED) == OVER:
                return False
            if read(desk, place) >= number:
                return True
        yield_core()
    return False


@kernel
def wait_until_done(desk: np.ndarray, rest: np.ndarray, lane: int, step: int) -> None:
    """The leader's wait for a lane that a helper has begun. A long one makes it go on alone for a while."""
    turns = 0
    while True:
        for _ in range(POLLS_BEFORE_YIELDING):
            if read(desk, place_of(lane, DONE)) >= step:
                if turns > LATE:
                    rest[0] = rest[1]
                    rest[1] = min(2 * rest[1], LONGEST_REST)
                return
        yield_core()
        turns += 1


@kernel
def lane_of(minibatch: np.ndarray, lane: int, lanes: int) -> np.ndarray:
    """Its rows, as evenly as can be."""
    return minibatch[minibatch.size * lane // lanes : minibatch.size * (lane + 1) // lanes]
