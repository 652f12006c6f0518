"""Actions as the learners send them, made into what an env expects."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

Decode = Callable[[Any], Any]


class ActionDecoder:
    """Learners count choices from zero, send several of them as one vector, and send numbers as float32.

    `space` is the action space of the env in these terms. `decode` takes the action of one env or a batch of them; an
    array that it returns is new, because some envs write into the actions they get. What is neither `Discrete`,
    `MultiDiscrete`, `MultiBinary` nor a `Box` of floats stays as it is: no learner plays it.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space: Space[Any] = space
        self.decode: Decode = _unchanged
        if isinstance(space, Discrete):
            self.space, self.decode = _counted_from_zero(space)
        elif isinstance(space, MultiDiscrete):
            self.space, self.decode = MultiDiscrete(space.nvec.ravel()), _choices(space, space.start)
        elif isinstance(space, MultiBinary):
            self.space, self.decode = MultiBinary(int(np.prod(space.shape))), _choices(space, np.zeros(1))
        elif isinstance(space, Box) and np.dtype(space.dtype).kind == "f":
            self.space, self.decode = _float32_box(space), _numbers(space)


def _unchanged(action: Any) -> Any:
    return action


def _counted_from_zero(space: Discrete[Any]) -> tuple[Discrete[Any], Decode]:
    first = space.start
    return Discrete(int(space.n)), _unchanged if first == 0 else lambda action: action + first


def _choices(space: Space[Any], first: np.ndarray) -> Decode:
    shape, dtype, first = space.shape or (), space.dtype, first.astype(space.dtype)

    def decode(action: np.ndarray) -> np.ndarray:
        return action.reshape(*action.shape[:-1], *shape).astype(dtype) + first

    return decode


def _float32_box(space: Box) -> Box:
    return Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)


def _numbers(space: Box) -> Decode:
    """Rounded to float32, a bound may lie a little outside of itself, so other types are clipped again."""
    dtype, low, high = np.dtype(space.dtype), space.low, space.high
    if dtype == np.float32:
        return lambda action: action.astype(np.float32)
    return lambda action: np.clip(action.astype(dtype), low, high)
