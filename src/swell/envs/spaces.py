"""Observations as the networks want them, one array per env, and actions as the envs want them."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    flatdim,
    flatten,
    flatten_space,
)

from swell.errors import ConfigError

KEPT_DTYPES = (np.dtype(np.uint8), np.dtype(np.bool_), np.dtype(np.float32))
SAFE_SUM_OF_SQUARES = 1e76
"""No number of an array whose squares sum to less is beyond 1e38; float32 ends at 3.4e38."""


class BadAnswerError(Exception):
    """An env returned something that it must not return; the message says what was expected and what came."""


class FlatBox(Box):
    """Vectors that were made of other observations, and how to take them apart again."""

    def __init__(self, low: np.ndarray, high: np.ndarray, source: Space[Any], masks: int) -> None:
        super().__init__(low, high, dtype=np.float32)
        self.source = source
        """The env's own space."""
        self.parts = parts_of(source)
        """Shapes that follow each other in the vector, images among them; empty where all of it is one vector."""
        self.masks = masks
        """So many numbers at the end are no observation: 1 for each action that is allowed now, 0 for the others."""


class ObservationEncoder:
    """Turns the observations of one env into arrays of a Box space.

    A Box keeps its shape and, if it holds bytes or booleans, its type; other numbers become float32. Every other space
    is flattened to a vector of float32, in which discrete values are one-hot and the bytes of images are in [0, 1].
    So is a Box with `masks` actions, of which each observation says at its end which are allowed.
    """

    def __init__(self, space: Space[Any], env_id: str, masks: int = 0) -> None:
        self._source = space
        self._masks = masks
        self._is_box = isinstance(space, Box) and not masks
        box = space if self._is_box and isinstance(space, Box) else _flat_box(space, env_id)
        dtype = np.dtype(box.dtype)
        self._dtype = dtype if dtype in KEPT_DTYPES else np.dtype(np.float32)
        self._source_dtype = dtype
        low, high = _cast(box.low, self._dtype), _cast(box.high, self._dtype)
        self.space = Box(low, high, dtype=self._dtype.type)
        self._shape = self.space.shape
        """Of what `encode` makes, to which a mask may be added."""
        self._is_float32 = self._dtype == np.float32
        self._divisors = None
        if not self._is_box:
            self._divisors = _divisors(space)
            divisors = 1.0 if self._divisors is None else self._divisors
            low, high = np.append(low / divisors, np.zeros(masks)), np.append(high / divisors, np.ones(masks))
            self.space = FlatBox(low.astype(np.float32), high.astype(np.float32), space, masks)

    def encode_masked(self, observation: Any, mask: np.ndarray) -> np.ndarray:
        """The observation with the actions that are allowed at its end."""
        return np.append(self.encode(observation), mask.astype(np.float32))

    def encode(self, observation: Any) -> np.ndarray:
        """The observation as an array; raises BadAnswerError, with what was expected, if it does not fit its space."""
        array = np.asarray(observation if self._is_box else self._flattened(observation))
        if array.shape != self._shape:
            raise _wrong_shape(array, self._shape)
        if self._is_float32 and _fits_float32(array):
            return array if array.dtype == self._dtype else array.astype(self._dtype)
        array = self._converted(array)
        if not all_finite(array):
            raise BadAnswerError(f"expected a finite observation, got {first_not_finite(array)}")
        return array

    def encode_rows(self, observations: np.ndarray, num_envs: int) -> np.ndarray:
        """The same for the observations of all envs at once, where the space is a Box."""
        if observations.shape[0:1] != (num_envs,) or observations.shape[1:] != self._shape:
            raise _wrong_shape(observations, (num_envs, *self._shape))
        return observations if observations.dtype == self._dtype else self._converted(observations)

    def _flattened(self, observation: Any) -> np.ndarray:
        if not self._source.contains(observation):
            raise BadAnswerError(f"expected an observation in {self._source}, got {repr(observation)[:80]}")
        flat = np.asarray(flatten(self._source, observation))
        return flat if self._divisors is None else flat / self._divisors

    def _converted(self, array: np.ndarray) -> np.ndarray:
        if array.dtype == self._dtype:
            return array
        exact = self._dtype.kind != "f"
        if array.dtype.kind not in "biuf" or (exact and not np.can_cast(array.dtype, self._dtype)):
            raise BadAnswerError(f"expected an observation of type {self._source_dtype}, got {array.dtype}")
        return _cast(array, self._dtype)


class ActionDecoder:
    """Learners count choices from zero, send several of them as one vector, and send numbers as float32.

    `space` is the action space of the env in these terms. `decode` takes the action of one env or a batch of them; an
    array that it returns is new, because some envs write into the actions they get. What is neither `Discrete`,
    `MultiDiscrete`, `MultiBinary` nor a `Box` of floats stays as it is: no learner plays it.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space: Space[Any] = space
        self.decode: Callable[[Any], Any] = lambda action: action
        if isinstance(space, Discrete):
            self.space = Discrete(int(space.n))
            if space.start != 0:
                self.decode = lambda action: action + space.start
        elif isinstance(space, MultiDiscrete):
            self.space = MultiDiscrete(space.nvec.ravel())
            self.decode = _choices_decoder(space, space.start)
        elif isinstance(space, MultiBinary):
            self.space = MultiBinary(int(np.prod(space.shape)))
            self.decode = _choices_decoder(space, np.zeros(1))
        elif isinstance(space, Box) and np.dtype(space.dtype).kind == "f":
            self.space = Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
            self.decode = _numbers_decoder(space)


def mask_sizes(space: Space[Any]) -> tuple[int, ...]:
    """How many choices each component of an action has; empty where actions cannot be left out."""
    if isinstance(space, Discrete):
        return (int(space.n),)
    return tuple(map(int, space.nvec.ravel())) if isinstance(space, MultiDiscrete) else ()


def checked_mask(mask: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """`info["action_mask"]` as booleans, those of several components one after the other."""
    rows = mask if isinstance(mask, tuple | list) and len(sizes) > 1 and len(mask) == len(sizes) else [mask]
    flat = np.concatenate([np.asarray(row).ravel() for row in rows])
    if flat.shape != (sum(sizes),) or flat.dtype.kind not in "biuf" or not np.isin(flat, (0, 1)).all():
        raise BadAnswerError(f"expected an action_mask of {sum(sizes)} zeros and ones, got {mask!r:.80}")
    return flat.astype(np.bool_)


def allows_an_action(mask: np.ndarray, sizes: tuple[int, ...]) -> bool:
    """Whether each component of an action has a choice."""
    return all(part.any() for part in np.split(mask, np.cumsum(sizes)[:-1]))


def allowed_choices(actions: np.ndarray, masks: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Actions [N] or [N, K] that are allowed, each by its number among the allowed ones; `masks` is [N, ΣA]."""
    rows = actions.reshape(len(actions), -1).copy()
    parts = np.split(masks > 0.5, np.cumsum(sizes)[:-1], axis=1)
    for row, column in np.ndindex(*rows.shape):
        allowed = np.flatnonzero(parts[column][row])
        rows[row, column] = allowed[rows[row, column] % len(allowed)]
    return rows.reshape(actions.shape)


def parts_of(space: Space[Any]) -> tuple[tuple[int, ...], ...]:
    """Shapes of what a flattened observation is made of, in order; empty where none of them has three dimensions."""
    leaves = list(_leaves(space))
    shapes = tuple(_part_shape(leaf) for leaf in leaves)
    return shapes if any(len(shape) == 3 for shape in shapes) else ()


def _part_shape(leaf: Space[Any]) -> tuple[int, ...]:
    is_image = isinstance(leaf, Box) and len(leaf.shape) == 3
    return leaf.shape if is_image and leaf.shape is not None else (flatdim(leaf),)


def _leaves(space: Space[Any]) -> Iterator[Space[Any]]:
    """In the order in which Gymnasium flattens them."""
    if isinstance(space, Dict | Tuple):
        for part in space.spaces.values() if isinstance(space, Dict) else space.spaces:
            yield from _leaves(part)
    else:
        yield space


def _divisors(space: Space[Any]) -> np.ndarray | None:
    """What brings the bytes of images to [0, 1], for each number of a flattened observation; None without any."""
    if not parts_of(space):
        return None
    numbers = [255.0 if len(_part_shape(leaf)) == 3 and leaf.dtype == np.uint8 else 1.0 for leaf in _leaves(space)]
    return np.repeat(np.array(numbers, np.float32), [flatdim(leaf) for leaf in _leaves(space)])


def _flat_box(space: Space[Any], env_id: str) -> Box:
    try:
        flat = flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, Box):
        raise ConfigError(f"{env_id}: observations of type {type(space).__name__} cannot be made into one array")
    return Box(_cast(flat.low, np.dtype(np.float32)), _cast(flat.high, np.dtype(np.float32)), dtype=np.float32)


def _cast(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf, and that is reported
        return array.astype(dtype)


def _wrong_shape(array: np.ndarray, shape: tuple[int, ...]) -> BadAnswerError:
    return BadAnswerError(f"expected an observation of shape {shape}, got {array.shape}")


def _fits_float32(array: np.ndarray) -> bool:
    """Whether these are certainly finite floats within the range of float32: the quick answer for nearly every step."""
    return array.dtype.kind == "f" and _sum_of_squares(array) < SAFE_SUM_OF_SQUARES


def all_finite(array: np.ndarray) -> bool:
    """Whether no number is infinite or NaN. A finite sum of squares says so; one that is not may have overflown."""
    if array.dtype.kind != "f" or math.isfinite(_sum_of_squares(array)):
        return True
    return bool(np.isfinite(array).all())


def _sum_of_squares(array: np.ndarray) -> float:
    """Finite only if all numbers are. `vdot`, because NumPy's other products warn where they overflow."""
    return float(np.vdot(array, array))


def first_not_finite(array: np.ndarray) -> str:
    """Names the first bad number of an array and its place, as in `nan at (2,)`."""
    place = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
    return f"{array[place]} at {place}"


def _choices_decoder(space: Space[Any], first: np.ndarray) -> Callable[[Any], Any]:
    shape, dtype, first = space.shape or (), space.dtype, first.astype(space.dtype)

    def decode(action: np.ndarray) -> np.ndarray:
        return action.reshape(*action.shape[:-1], *shape).astype(dtype) + first

    return decode


def _numbers_decoder(space: Box) -> Callable[[Any], Any]:
    """Rounded to float32, a bound may lie a little outside of itself, so other types are clipped again."""
    dtype, low, high = np.dtype(space.dtype), space.low, space.high
    if dtype == np.float32:
        return lambda action: action.astype(np.float32)
    return lambda action: np.clip(action.astype(dtype), low, high)
