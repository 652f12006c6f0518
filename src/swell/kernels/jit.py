"""How kernels are compiled, and where their machine code is kept.

Importing this imports numba, which takes half a second: only modules of kernels do, and those only once one is wanted.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba

from swell.kernels.cache import cache_directory

_config: Any = numba.config  # pyright: ignore[reportPrivateImportUsage]
Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {
    "error_model": "numpy",  # with Python's check of every division nothing is vectorised
    "fastmath": {"contract", "reassoc", "nsz"},  # sums in any order, but infinities and NaN stay what they are
    "nogil": True,
}


def kernel(function: Function) -> Function:
    """Compiles a function at its first call, once for each set of argument types; the machine code is kept on disk."""
    return _compiled(function, OPTIONS)


def exact_kernel(function: Function) -> Function:
    """The same without any freedom in the arithmetic, for what has to come out as it does in NumPy, to the last bit."""
    return _compiled(function, {**OPTIONS, "fastmath": False})


def _compiled(function: Function, options: dict[str, Any]) -> Function:
    with _cached_in(cache_directory()):
        try:
            return numba.njit(cache=True, **options)(function)  # pyright: ignore[reportReturnType]
        except RuntimeError:  # there is no place on this machine that it may write to
            return numba.njit(**options)(function)  # pyright: ignore[reportReturnType]


@contextmanager
def _cached_in(directory: Path) -> Generator[None]:
    """numba asks for its cache directory when a function is decorated; what others decorate stays where it was."""
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(directory)
    try:
        yield
    finally:
        _config.CACHE_DIR = before
