"""What a person sees while an evaluation plays: how many of its episodes have ended."""

import math
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from swell.display.console import is_live_terminal, patient_console, say, silenced_on_failure
from swell.display.starting import Countdown
from swell.envs.starting import listening

PATIENCE_SECONDS = 1.0
"""An evaluation that is over sooner says nothing but its score."""
REDRAW_SECONDS = 0.25

ShowPlayed = Callable[[int, int, int], None]
"""Is told after each step how many episodes of how many have ended, and how many steps there were."""


class HasStatus(Protocol):
    """What says in a line what is going on."""

    def status(self, text: str) -> None: ...


@contextmanager
def show_evaluation(display: HasStatus, clock: Callable[[], float] = time.monotonic) -> Generator[ShowPlayed]:
    """Envs that take long to start are counted in the status of a display, and then the episodes that have ended."""
    countdown = Countdown(clock)
    show_next = clock() + PATIENCE_SECONDS

    def show_started(started: int, num_envs: int) -> None:
        words = countdown.words(started, num_envs)
        if started == 0:
            words = f"starting {num_envs} envs for the evaluation"
        display.status("evaluating" if started == num_envs else words)

    def show_played(finished: int, episodes: int, steps: int) -> None:
        nonlocal show_next
        if (now := clock()) >= show_next:
            show_next = now + REDRAW_SECONDS
            display.status(f"evaluating {finished} of {episodes} · step {steps:,}")

    try:
        with listening(show_started):
            yield show_played
    finally:
        display.status("")


class StatusLine:
    """A status of its own, where there is no run to show: a line that disappears, or lines of a log now and then."""

    def __init__(
        self,
        console: Console | None = None,
        every_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or patient_console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if is_live_terminal() else None
        self._every_seconds, self._clock = every_seconds, clock
        self._said_at = -math.inf

    def status(self, text: str) -> None:
        if self._live is None:
            if text and self._clock() - self._said_at >= self._every_seconds:
                self._said_at = self._clock()
                say(text, self._console)
            return
        with silenced_on_failure(self._console):
            if not text:
                self._live.stop()
                return
            self._live.start()  # does nothing from the second time on
            self._live.update(Text(text), refresh=True)
