"""The curves of a run from its metrics.jsonl and evaluations.jsonl: thinned, parsed and put in order."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from swell.display.sinks import PHASES
from swell.report.untrusted import Row, clean_text, finite_number, own_file

Array = NDArray[np.float64]

MAX_POINTS = 400
"""Most points of a log that are kept; more than a plot can show."""
NO_POINTS: Array = np.zeros(0)


@dataclass(frozen=True)
class RunLog:
    """The curves of a run; the first five arrays are of one length and NaN where a row had no such number."""

    env_steps: Array = field(default_factory=lambda: NO_POINTS)
    wall_seconds: Array = field(default_factory=lambda: NO_POINTS)
    gradient_steps: Array = field(default_factory=lambda: NO_POINTS)
    episode_return: Array = field(default_factory=lambda: NO_POINTS)
    horizon: Array = field(default_factory=lambda: NO_POINTS)
    """As planned: the very last rollout of a run is cut to the run's total."""
    reading_env_steps: Array = field(default_factory=lambda: NO_POINTS)
    readings: Array = field(default_factory=lambda: NO_POINTS)
    evaluation_env_steps: Array = field(default_factory=lambda: NO_POINTS)
    evaluation_returns: Array = field(default_factory=lambda: NO_POINTS)
    signal: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Phase -> seconds, over the whole run."""


def read_log(directory: Path) -> tuple[RunLog, str]:
    """The curves of a run, and what is wrong with its log."""
    lines, reading_lines = _thinned_lines(directory / "metrics.jsonl")
    rows, damaged = _parsed(lines)
    rows = _in_order(rows)
    reading_rows = _with_number(_in_order(_parsed(reading_lines)[0]), "reading")
    evaluation_lines, _ = _thinned_lines(directory / "evaluations.jsonl")
    evaluations = _with_number(_in_order(_parsed(evaluation_lines)[0]), "mean_return")
    log = RunLog(
        env_steps=_column(rows, "env_steps"),
        wall_seconds=_rising(_column(rows, "wall_seconds")),
        gradient_steps=_rising(_column(rows, "gradient_steps")),
        episode_return=_column(rows, "episode_return"),
        horizon=_planned_horizons(rows),
        reading_env_steps=_column(reading_rows, "env_steps"),
        readings=_column(reading_rows, "reading"),
        evaluation_env_steps=_column(evaluations, "env_steps"),
        evaluation_returns=_column(evaluations, "mean_return"),
        signal=clean_text((reading_rows or rows or [{}])[-1].get("signal", "")),
        seconds=_seconds(rows),
    )
    return log, f"{damaged} damaged lines in metrics.jsonl" if damaged else ""


def _thinned_lines(path: Path) -> tuple[list[bytes], list[bytes]]:
    """About evenly spaced lines of a log of any length, its last two among them; and the same of those with a reading.

    In one pass and bounded memory: whenever too many are kept, every second one goes.
    """
    kept, with_reading = _Thinned(), _Thinned()
    before = last = b""
    if own_file(path):
        try:
            with open(path, "rb") as file:
                for line in file:
                    kept.add(line)
                    if b'"reading"' in line:
                        with_reading.add(line)
                    before, last = last, line
        except OSError:
            pass  # what was read until then
    ends = [line for line in (before, last) if line and line not in kept.lines[-2:]]
    return kept.lines + ends, with_reading.lines


class _Thinned:
    """Every n-th of the lines that come, n doubling as they get many."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._stride, self._seen = 1, 0

    def add(self, line: bytes) -> None:
        if self._seen % self._stride == 0:
            self.lines.append(line)
        self._seen += 1
        if len(self.lines) == MAX_POINTS - 2:
            self.lines = self.lines[::2]
            self._stride *= 2


def _parsed(lines: Iterable[bytes]) -> tuple[list[Row], int]:
    """The rows, and how many lines are none; half a line at the end is how a killed run stops, not damage."""
    rows: list[Row] = []
    damaged = 0
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(cast(Row, row))
        elif line.strip() and line.endswith(b"\n"):
            damaged += 1
    return rows, damaged


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows whose env steps increase; others cannot be drawn."""
    ordered: list[Row] = []
    latest = -math.inf
    for row in rows:
        env_steps = finite_number(row.get("env_steps"))
        if env_steps is not None and env_steps > latest:
            ordered.append(row)
            latest = env_steps
    return ordered


def _with_number(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if finite_number(row.get(name)) is not None]


def _column(rows: Sequence[Row], name: str) -> Array:
    numbers = (finite_number(row.get(name)) for row in rows)
    return np.array([math.nan if number is None else number for number in numbers], dtype=np.float64)


def _rising(values: Array) -> Array:
    """A clock never goes back."""
    return np.fmax.accumulate(values) if values.size else values


def _planned_horizons(rows: Sequence[Row]) -> Array:
    horizons = _column(rows, "horizon")
    planned = finite_number(rows[-2].get("next_horizon")) if len(rows) > 1 else None
    if planned is not None:
        horizons[-1] = planned
    return horizons


def _seconds(rows: Sequence[Row]) -> dict[str, float]:
    last = rows[-1] if rows else {}
    seconds = {phase: finite_number(last.get(f"seconds_{phase}")) for phase in PHASES}
    return {phase: value for phase, value in seconds.items() if value is not None}
