"""What a person sees of a benchmark: a live table, plain lines off a terminal, or nothing."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TextIO

from swell.bench.contract import Board
from swell.bench.plan import START_SECONDS, STEPS_PER_SECOND
from swell.bench.status import RunState, Status
from swell.console import patient_console, say
from swell.envs.ids import env_family
from swell.wording import count, decimal


def make_board(quiet: bool) -> Board:
    """The display that fits where stdout goes."""
    if quiet or sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # None under pythonw
        return QuietBoard()
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
                finished = f" ({sum(other.is_finished for other in states)} of {len(states)})"
                self.message(line + (finished if state.is_finished else ""))

    def message(self, text: str) -> None:
        say(text, self._console)

    def close(self) -> None: ...


def event_line(before: Status | None, state: RunState) -> str:
    """What to say of a run whose status has changed; nothing where that is no news."""
    if before == state.status or (before is None and state.status != "running"):
        return ""
    name = state.run.name
    match state.status:
        case "running":
            at = f" at {count(state.env_steps)} steps" if state.env_steps else ""
            return f"{'continues' if state.env_steps else 'starts'} {name}{at}"
        case "done" | "diverged":
            word = "finished" if state.status == "done" else "diverged"
            return f"{word} {name}, score {decimal(state.score)}"
        case "failed":
            return f"failed {name}: {state.reason}"
        case "in use":
            return f"in use by another process: {name}"
        case _:
            return ""


def headline(states: Sequence[RunState]) -> str:
    """Such as "42 of 140 finished, 2 running, 1 failed, about 1 h 20 min left"."""
    counts = Counter(state.status for state in states)
    finished = sum(state.is_finished for state in states)
    told = [f"{finished} of {len(states)} finished"]
    told += [f"{counts[status]} {status}" for status in ("running", "in use", "failed") if counts[status]]
    left = seconds_left(states)
    if left:
        told.append(f"about {rough_duration(left)} left")
    return ", ".join(told)


def seconds_left(states: Sequence[RunState]) -> float:
    """How long the rest may take, by the speeds that runs of the same env have shown, else by a first guess."""
    speeds = _speeds(states)
    rest = [_seconds_of(state, speeds) for state in states if not state.is_finished and state.status != "failed"]
    at_once = max(1, sum(state.status in ("running", "in use") for state in states))
    return max([sum(rest) / at_once, *rest], default=0.0)


def rough_duration(seconds: float) -> str:
    """`40 s`, `12 min`, `1 h 20 min` or `2 days 3 h`: no finer than an estimate deserves."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days {hours % 24} h"


def _speeds(states: Sequence[RunState]) -> dict[str, float]:
    steps: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for state in states:
        if state.wall_seconds:
            steps[state.run.env] += state.env_steps
            seconds[state.run.env] += state.wall_seconds  # pyright: ignore[reportArgumentType]
    return {env: steps[env] / seconds[env] for env in steps if seconds[env] and steps[env]}


def _seconds_of(state: RunState, speeds: Mapping[str, float]) -> float:
    speed = speeds.get(state.run.env) or STEPS_PER_SECOND[env_family(state.run.env)]
    rest = max(0, state.run.config.total_env_steps - state.env_steps)
    return rest / speed + (0.0 if state.status == "running" else START_SECONDS)


_ = os  # used by the live table
