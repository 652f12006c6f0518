"""Spaces as plain data and back, so that a policy can be loaded where its env is not installed."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from swell.errors import StorageError


def space_data(space: Space[Any]) -> dict[str, Any] | None:
    """What `space_from` makes the same space of; None for a space that has no such form."""
    if isinstance(space, Box):
        bounds = {"low": _numbers(space.low), "high": _numbers(space.high)}
        return {"kind": "box", **bounds, "shape": list(space.shape), "dtype": np.dtype(space.dtype).name}
    if isinstance(space, Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiDiscrete):
        return {"kind": "multi-discrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, MultiBinary):
        return {"kind": "multi-binary", "shape": list(space.shape)}
    if isinstance(space, Dict):
        return _of_parts("dict", [[name, space_data(part)] for name, part in space.spaces.items()])
    if isinstance(space, Tuple):
        return _of_parts("tuple", [["", space_data(part)] for part in space.spaces])
    return None


def space_from(data: Any) -> Space[Any]:
    """The inverse of `space_data`; what it cannot have written is refused in one line."""
    try:
        return _KINDS[data["kind"]](data)
    except (KeyError, TypeError, ValueError, AssertionError, OverflowError) as error:
        raise StorageError(f"not a space: {str(data)[:80]} ({type(error).__name__})") from error


def _of_parts(kind: str, parts: list[list[Any]]) -> dict[str, Any] | None:
    return None if any(part is None for _, part in parts) else {"kind": kind, "parts": parts}


def _numbers(bounds: np.ndarray) -> Any:
    """One number where all are the same; infinities as words, which JSON has no numbers for."""
    flat = [value if np.isfinite(value) else str(value) for value in bounds.astype(np.float64).ravel().tolist()]
    return flat[0] if flat and all(value == flat[0] for value in flat) else flat


def _box(data: Any) -> Box:
    shape, dtype = tuple(map(int, data["shape"])), np.dtype(str(data["dtype"]))
    low, high = (
        np.broadcast_to(np.array(data[side], np.float64).ravel(), (int(np.prod(shape)),)) for side in ("low", "high")
    )
    return Box(low.reshape(shape).astype(dtype), high.reshape(shape).astype(dtype), dtype=dtype.type)


_KINDS: dict[str, Callable[[Any], Space[Any]]] = {
    "box": _box,
    "discrete": lambda data: Discrete(data["n"], start=data["start"]),
    "multi-discrete": lambda data: MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"])),
    "multi-binary": lambda data: MultiBinary(data["shape"]),
    "dict": lambda data: Dict([(name, space_from(part)) for name, part in data["parts"]]),
    "tuple": lambda data: Tuple([space_from(part) for _, part in data["parts"]]),
}
