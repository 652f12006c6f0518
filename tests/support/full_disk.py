"""A disk that takes no more, for tests."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """A real error from the system; it must end before pytest writes its own output to a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
