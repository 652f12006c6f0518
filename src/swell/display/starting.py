"""What a person sees while envs start: one line that says so, and on a terminal how far they are."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from swell.display.console import is_live_terminal, patient_console, say, silenced_on_failure
from swell.envs.starting import listening


class Countdown:
    """The words for a number of envs that have started, with the time that the others will take at this pace."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    def words(self, started: int, num_envs: int) -> str:
        if started == 0:
            self._began = self._clock()
            return f"starting envs: 0 of {num_envs}"
        seconds = (self._clock() - self._began) * (num_envs - started) / started
        return f"starting envs: {started} of {num_envs} ({seconds:.0f} s left)"


@contextmanager
def show_starting(text: str, quiet: bool, console: Console | None = None) -> Generator[None]:
    """Says `text`, and counts the envs that start in this context as `counting_envs` does."""
    if quiet:
        yield
        return
    console = console or patient_console()
    say(text, console)
    with counting_envs(console):
        yield


@contextmanager
def counting_envs(console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> Generator[None]:
    """Where stdout is a terminal, envs that take long to start are counted in a line that disappears when all have.

    It draws only when it is told something, in the thread that starts the envs: while ale-py constructs some of them
    no other thread could.
    """
    if not is_live_terminal():
        yield
        return
    console = console or patient_console()
    countdown = Countdown(clock)
    live = Live(console=console, auto_refresh=False, transient=True)

    def draw(started: int, num_envs: int) -> None:
        with silenced_on_failure(console):
            if started == num_envs:
                live.stop()
                return
            live.start()  # does nothing from the second time on
            live.update(Text(countdown.words(started, num_envs)), refresh=True)

    try:
        with listening(draw):
            yield
    finally:
        with silenced_on_failure(console):
            live.stop()
