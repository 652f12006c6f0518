"""What a person sees of a benchmark: a live table on a terminal, plain lines off it, or nothing."""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from swell.bench.forecast import rough_duration, seconds_left, seconds_left_of, speeds_of
from swell.bench.queue import Board
from swell.bench.status import RunState, Status
from swell.display.console import patient_console, say
from swell.display.words import count, decimal, percent, to_ascii

DRAW_SECONDS = 0.25
BAR_WIDTH = 12
FULL_WIDTH = 104
"""From this width on a table has room for the bar, the speed and the time left as well."""
ORDER: tuple[Status, ...] = (
    "running",
    "in use",
    "failed",
    "diverged",
    "interrupted",
    "missing",
    "waiting",
    "stopped",
    "done",
)
STATUS_STYLES: dict[Status, tuple[str, str]] = {
    "running": ("running", "bold cyan"),
    "in use": ("in use", "cyan"),
    "failed": ("failed", "bold red"),
    "diverged": ("diverged", "red"),
    "interrupted": ("saved", "yellow"),
    "missing": ("queued", "dim"),
    "waiting": ("waiting", "dim"),
    "stopped": ("stopped", "dim"),
    "done": ("finished", "green"),
}


def make_board(quiet: bool) -> Board:
    """The display that fits where stdout goes."""
    if quiet or sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # None under pythonw
        return QuietBoard()
    if sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        return LiveBoard()
    return PlainBoard()


class QuietBoard:
    """Says nothing."""

    def show(self, states: Sequence[RunState]) -> None: ...

    def message(self, text: str) -> None: ...

    def close(self) -> None: ...


class PlainBoard:
    """A line when a run starts, finishes or fails, for log files and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = patient_console(stream)
        self._told: dict[str, Status] = {}

    def show(self, states: Sequence[RunState]) -> None:
        if not self._told:
            self.message(headline(states))
        for state in states:
            before = self._told.get(state.run.name)
            self._told[state.run.name] = state.status
            line = event_line(before, state)
            if line:
                self.message(f"{line} · {headline(states)}" if state.is_finished else line)

    def message(self, text: str) -> None:
        say(text, self._console)

    def close(self) -> None: ...


class LiveBoard:
    """A table that stays in place, redrawn at most four times a second; notices and failures scroll by above.

    It draws only when the queue shows it something, in the queue's own thread.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console or patient_console(), clock
        self._view = BoardView(())
        self._live = Live(self._view, console=self._console, auto_refresh=False)
        self._drawn_at = -math.inf
        self._failed: set[str] = set()

    def show(self, states: Sequence[RunState]) -> None:
        self._view.states = tuple(states)
        for state in states:
            if state.status == "failed" and state.run.name not in self._failed:
                self._failed.add(state.run.name)
                self.message(f"failed {state.run.name}: {state.reason}")
        if self._clock() - self._drawn_at >= DRAW_SECONDS:
            self._draw()

    def message(self, text: str) -> None:
        say(text, self._console)

    def close(self) -> None:
        """Leaves the last table on the screen and gives the cursor back."""
        if self._live.is_started:
            self._draw()
        with suppress(OSError, ValueError):
            self._live.stop()

    def _draw(self) -> None:
        self._drawn_at = self._clock()
        with suppress(OSError, ValueError):  # the benchmark outlives its terminal
            self._live.start()
            self._live.refresh()


class BoardView:
    """The table as something rich can draw at any width and height."""

    def __init__(self, states: Sequence[RunState]) -> None:
        self.states = tuple(states)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        ascii_only = options.ascii_only
        room = max(1, (options.height or console.size.height) - 4)  # headline, names of the columns, rest, cursor
        rows = sorted(self.states, key=lambda state: ORDER.index(state.status))
        shown, hidden = rows[:room], rows[room:]
        yield _line(headline(self.states), "bold", ascii_only)
        if shown:
            yield _table(shown, speeds_of(self.states), options.max_width >= FULL_WIDTH, ascii_only)
        if hidden:
            counts = [(STATUS_STYLES[status][0], sum(state.status == status for state in hidden)) for status in ORDER]
            rest = ", ".join(f"{number} {word}" for word, number in counts if number)
            yield _line(f"and {rest}", "dim", ascii_only)


def headline(states: Sequence[RunState]) -> str:
    """Such as "42 of 140 finished, 2 running, 1 failed, about 1 h 20 min left"."""
    told = [f"{sum(state.is_finished for state in states)} of {len(states)} finished"]
    for status in ("running", "in use", "stopped", "failed"):
        number = sum(state.status == status for state in states)
        told += [f"{number} {status}"] if number else []
    left = seconds_left(states)
    return ", ".join([*told, f"about {rough_duration(left)} left"] if left else told)


def event_line(before: Status | None, state: RunState) -> str:
    """What to say of a run whose status was `before`; nothing where that is no news."""
    if before == state.status or (before is None and state.status != "running"):
        return ""
    name = state.run.name
    match state.status:
        case "running" if state.env_steps:
            return f"continues {name} at {count(state.env_steps)} steps"
        case "running":
            return f"starts {name}"
        case "done":
            return f"finished {name}" if state.score is None else f"finished {name}, score {decimal(state.score)}"
        case "diverged":
            return f"diverged {name} at {count(state.env_steps)} steps"
        case "stopped":
            return f"stopped {name} at {count(state.env_steps)} steps"
        case "failed":
            return f"failed {name}: {state.reason}"
        case "in use":
            return f"in use by another process: {name}"
        case _:
            return ""


def _table(states: Sequence[RunState], speeds: dict[str, float], full: bool, ascii_only: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    names = ["env", "variant", "seed", "state", "done", "return", "horizon"]
    for name in [*names, "steps/s", "left"] if full else names:
        is_number = name in ("seed", "return", "horizon", "steps/s", "left")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis")
    for state in states:
        cells = _cells(state, speeds, full)
        table.add_row(*(Text(to_ascii(text) if ascii_only else text, style) for text, style in cells))
    return table


def _cells(state: RunState, speeds: dict[str, float], full: bool) -> list[tuple[str, str]]:
    """The texts of a line, each with its style; what is not known is left empty."""
    word, style = STATUS_STYLES[state.status]
    value = state.episode_return if state.score is None else state.score
    cells = [
        (state.run.env, ""),
        (state.run.variant.label, ""),
        (str(state.run.seed), ""),
        (word, style),
        (_progress(state, full), style),
        ("" if value is None else decimal(value), ""),
        ("" if state.horizon is None else count(state.horizon), ""),
    ]
    if not full:
        return cells
    works = state.status in ("running", "in use")
    speed = state.steps_per_second if works else None
    left = rough_duration(seconds_left_of(state, speeds)) if works else ""
    return [*cells, ("" if speed is None else count(speed), ""), (left, "")]


def _progress(state: RunState, full: bool) -> str:
    if state.status in ("missing", "waiting"):
        return ""
    done = round(state.fraction_done * BAR_WIDTH)
    bar = "━" * done + "─" * (BAR_WIDTH - done) + " " if full else ""
    return f"{bar}{percent(state.fraction_done)}"


def _line(text: str, style: str, ascii_only: bool) -> Text:
    return Text(to_ascii(text) if ascii_only else text, style, no_wrap=True, overflow="ellipsis")
