"""What a person sees while a run trains: a live panel, plain lines or nothing."""

import math
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Protocol, TextIO

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text

from swell.display.sinks import Row, Sink
from swell.display.words import to_ascii


class RunView(Protocol):
    """A run as displays show it: its rows added up, in one line of a log and as a panel of any width."""

    @property
    def title(self) -> str: ...

    @property
    def opening(self) -> list[str]: ...

    def add(self, row: Row) -> None: ...

    def add_evaluation(self, row: Row) -> str: ...

    def line(self) -> str: ...

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult: ...


class Display(Sink, Protocol):
    """A sink that a person looks at."""

    def status(self, text: str) -> None:
        """What takes long just now, in place of the status before; an empty one ends it."""
        ...


def make_console(quiet: bool, view: RunView) -> Display:
    """The display that fits where stdout goes: nothing, a live panel on a terminal, or plain lines."""
    if quiet or sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # None under pythonw
        return Quiet()
    return LivePanel(view) if is_live_terminal() else PlainLines(view)


def is_live_terminal() -> bool:
    """Whether stdout is a terminal on which lines can be drawn anew."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]
    return is_terminal and os.environ.get("TERM") not in ("dumb", "unknown")


class Quiet:
    """Says nothing; errors reach the user through the exit line of the command."""

    def write(self, row: Row) -> None: ...

    def evaluation(self, row: Row) -> None: ...

    def message(self, text: str) -> None: ...

    def status(self, text: str) -> None: ...

    def close(self) -> None: ...


class PlainLines:
    """A line now and then, for log files and pipes: the first row, one every `every_seconds`, and the last."""

    def __init__(
        self,
        view: RunView,
        every_seconds: float = 5.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view, self._every_seconds, self._clock = view, every_seconds, clock
        self._console = patient_console(stream)
        self._told_at = -math.inf
        self._has_news = False
        self._has_status, self._status_at = False, -math.inf
        for line in view.opening:
            self.message(line)

    def write(self, row: Row) -> None:
        self._view.add(row)
        self._has_news = True
        if self._clock() - self._told_at >= self._every_seconds:
            self._tell()

    def evaluation(self, row: Row) -> None:
        self.message(f"evaluation: {self._view.add_evaluation(row)}")

    def message(self, text: str) -> None:
        say(text, self._console)

    def status(self, text: str) -> None:
        """The first of several, and then one as often as a row."""
        if text and not (self._has_status and self._clock() - self._status_at < self._every_seconds):
            self._status_at = self._clock()
            self.message(text)
        self._has_status = bool(text)

    def close(self) -> None:
        if self._has_news:
            self._tell()

    def _tell(self) -> None:
        self._told_at, self._has_news = self._clock(), False
        self.message(self._view.line())


class LivePanel:
    """A panel that stays in place and is redrawn at most four times a second; notices scroll by above it.

    It draws only when the run reports something, in the run's own thread: nothing to race with, nothing to kill.
    The first report opens it, so a run that fails while being set up leaves the terminal as it was.
    """

    def __init__(
        self, view: RunView, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._view, self._clock = view, clock
        self._console = console or patient_console()
        self._live = Live(view, console=self._console, auto_refresh=False)
        self._drawn_at = -math.inf
        self.message(f"starting {view.title}")

    def write(self, row: Row) -> None:
        self._view.add(row)
        if self._clock() - self._drawn_at >= 0.25:
            self._draw()

    def evaluation(self, row: Row) -> None:
        self._view.add_evaluation(row)
        self._draw()

    def message(self, text: str) -> None:
        say(text, self._console)

    def status(self, text: str) -> None:
        """A line below the panel."""
        self._live.update(Group(self._view, Text(text)) if text else self._view)
        self._draw()

    def close(self) -> None:
        """Leaves the last panel on the screen and gives the cursor back."""
        with silenced_on_failure(self._console):
            self._live.stop()

    def _draw(self) -> None:
        self._drawn_at = self._clock()
        with silenced_on_failure(self._console):
            self._live.start()  # does nothing from the second time on
            self._live.refresh()


class _PatientConsole(Console):
    """A console that falls silent when its reader is gone; rich's own would end the process."""

    def on_broken_pipe(self) -> None:
        _discard_output(self)


def patient_console(stream: TextIO | None = None) -> Console:
    """A console for `stream` (default: stdout) that never raises because of whoever reads it."""
    return _PatientConsole(file=stream, soft_wrap=True, markup=False, highlight=False, emoji=False)


def say(text: str, console: Console) -> None:
    """Prints text as it is; on a stream without UTF-8, in ASCII."""
    with silenced_on_failure(console):
        console.print(to_ascii(text) if console.options.ascii_only else text)


def warn(text: str) -> None:
    """Says on stderr, where `--quiet` leaves it, what was found damaged."""
    say(f"swell: {text}", patient_console(sys.stderr))


@contextmanager
def silenced_on_failure(console: Console) -> Generator[None, None, None]:
    """Training outlives its display: a full disk or a hung-up terminal ends the printing, not the run."""
    try:
        yield
    except OSError:
        _discard_output(console)
    except ValueError:  # the stream was closed
        console.quiet = True


def _discard_output(console: Console) -> None:
    console.quiet = True
    with suppress(OSError, ValueError):  # else the interpreter's last flush fails too and spoils the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), console.file.fileno())
