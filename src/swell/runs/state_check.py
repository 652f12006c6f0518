"""Whether a loaded state could be one of the run that was just built: what would otherwise fail later, and oddly."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from swell.errors import StorageError, is_out_of_memory

NOT_COMPARED = ("envs",)
"""Parts of a state that only their owner can judge."""


@contextmanager
def misfits_refused(directory: str | Path, env_steps: int) -> Generator[None]:
    """Around the loading of a state. It is whole, so it was saved by another run than config.json says, or made up."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise StorageError(
            f"the checkpoint of env step {env_steps:,} in {directory} does not fit its config.json ({reason}); "
            "start again with --new"
        ) from error


def require_alike(fresh: Any, loaded: Any, path: str = "") -> None:
    """A TypeError that names the first part of `loaded` that is of another kind than in a fresh state.

    What is None in either, and what only one of them has, is left to whoever loads it.
    """
    if fresh is None or loaded is None:
        return
    if _kind(fresh) != _kind(loaded):
        raise TypeError(f"{path} is of kind {_kind(loaded)}, not {_kind(fresh)}")
    if isinstance(fresh, dict):
        ours, theirs = cast("dict[Any, Any]", fresh), cast("dict[Any, Any]", loaded)
        for name in ours.keys() & theirs.keys():
            if name not in NOT_COMPARED:
                require_alike(ours[name], theirs[name], f"{path}/{name}" if path else str(name))
    elif isinstance(fresh, list) and fresh:
        for entry in cast("list[Any]", loaded):
            require_alike(cast("list[Any]", fresh)[0], entry, f"{path}[]")


def require_numbers(values: Any, *names: str) -> None:
    """A TypeError where one of these is no number."""
    wrong = [name for name in names if _kind(values[name]) not in ("int", "float")]
    if wrong:
        raise TypeError(f"{wrong[0]} is of kind {_kind(values[wrong[0]])}, not a number")


def _kind(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        array = cast(Any, value)
        return f"array of {array.dtype} with {array.ndim} dimensions"
    if isinstance(value, list | tuple):
        return "list"
    if isinstance(value, dict):  # torch has an ordered one
        return "dict"
    return "float" if isinstance(value, np.floating) else type(value).__name__
