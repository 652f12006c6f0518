"""How a run ends when it does not end well: what its summary says, and what the error adds for the user."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from swell.errors import DivergedError, OutOfMemoryError, SwellError, is_out_of_memory
from swell.runs.interrupt import InterruptedRunError


@contextmanager
def told_out_of_memory(less_memory: str) -> Generator[None]:
    """Around what allocates; `less_memory` is what to lower where that is refused."""
    try:
        yield
    except SwellError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        first = (str(error).splitlines() or ["no more is to be had"])[0]
        raise OutOfMemoryError(f"out of memory: {first}; lower {less_memory}") from error


@contextmanager
def told_endings(summarise: Callable[[str], None], last_good: Callable[[], str], less_memory: str) -> Generator[None]:
    """Around the work of a run: `summarise` gets the status, `last_good` names the checkpoint to go back to.

    `less_memory` is what to lower where memory runs out.
    """
    try:
        yield
    except (InterruptedRunError, KeyboardInterrupt):
        summarise("interrupted")
        raise
    except DivergedError as error:
        summarise("diverged")
        raise DivergedError(f"{error}; {last_good()}; lower learning_rate") from error
    except BaseException as error:
        summarise("failed")
        if is_out_of_memory(error):
            raise OutOfMemoryError(f"out of memory: {error}; lower {less_memory}") from error
        raise
