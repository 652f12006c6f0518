"""How far a batch of envs has come in starting, for whoever shows it: a hundred Atari envs take many seconds."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int, int], None]
"""Is told how many envs of how many have started: zero first, then all that is news."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Backends that take long tell `listener` how far they are, for as long as the context is open."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(started: int, num_envs: int) -> None:
    """Called by a backend while it starts envs; nobody may be listening."""
    if (listener := _listener.get()) is not None:
        listener(started, num_envs)
