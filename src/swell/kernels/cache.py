"""Where the machine code of kernels is kept, and whether it is there. Nothing here imports numba."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def cache_directory() -> Path:
    """A directory of its own for each place and state of the source: numba keeps them apart by place, too.

    By itself numba would not notice that a function which a kernel calls was changed in another file, and would go on
    with its old code.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = os.environ.get("NUMBA_CACHE_DIR") or Path(home) / "swell"
    return Path(root) / _state_of_the_source()


def are_cached(kernels: Iterable[str]) -> bool:
    """Whether kernels, as `module.function`, were compiled on this machine before."""
    directory = cache_directory()
    return all(any(directory.glob(f"*/{name}-*.nbi")) for name in kernels)


def _state_of_the_source() -> str:
    digest = hashlib.sha256(str(Path(__file__).parent).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return f"kernels-{digest.hexdigest()[:16]}"
