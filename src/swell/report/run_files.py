"""The files that a run left behind, read with care: they may be damaged, half-written, or come from somebody else.

Nothing here raises because of what is found, and no file is read through a symbolic link. Logs of any length become
curves of a few hundred points.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from swell.errors import SwellError
from swell.report.words import ENV_RUN, Kind
from swell.runs.logs import LONGEST_LINE
from swell.runs.run_directory import is_plain_file
from swell.runs.sealed import unsealed

Row = dict[str, Any]
Array = NDArray[np.float64]

MAX_POINTS = 400
"""Most points of a log that are kept; more than a plot can show."""
NO_POINTS: Array = np.zeros(0)


@dataclass(frozen=True)
class RunLog:
    """The curves of a run; the first seven arrays are of one length and NaN where a row had no such number."""

    clock: Array = field(default_factory=lambda: NO_POINTS)
    wall_seconds: Array = field(default_factory=lambda: NO_POINTS)
    training_seconds: Array = field(default_factory=lambda: NO_POINTS)
    """Of all phases together: without evaluations and checkpoints."""
    gradient_steps: Array = field(default_factory=lambda: NO_POINTS)
    score: Array = field(default_factory=lambda: NO_POINTS)
    ess: Array = field(default_factory=lambda: NO_POINTS)
    """Effective sample size, where the objective has one."""
    batch: Array = field(default_factory=lambda: NO_POINTS)
    """What the scaler moves. Rollouts as planned: the very last one of a run is cut to the run's total."""
    reading_clock: Array = field(default_factory=lambda: NO_POINTS)
    readings: Array = field(default_factory=lambda: NO_POINTS)
    evaluation_clock: Array = field(default_factory=lambda: NO_POINTS)
    evaluation_scores: Array = field(default_factory=lambda: NO_POINTS)
    signal: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Phase -> seconds, over the whole run."""


def finite_number(value: object) -> float | None:
    """A number that one can count with, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of more than 308 digits
        return None


def whole_number(value: object) -> int | None:
    """An integer that fits into 64 bits, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def clean_text(value: object) -> str:
    """As one line without what would disturb a page: control characters, text direction marks, broken encodings."""
    text = str(value).encode("utf-8", "replace").decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+", " ", text).strip()[:300]


def clean_texts(value: object) -> dict[str, str]:
    """An object of texts, cleaned; empty if it is none."""
    if not isinstance(value, dict):
        return {}
    return {clean_text(key): clean_text(entry) for key, entry in cast("dict[Any, Any]", value).items()}


def read_object(path: Path) -> tuple[Row, str]:
    """The object in a JSON file, or what is wrong with the file."""
    if not is_plain_file(path):
        return {}, "" if not os.path.lexists(path) else f"{path.name} is not a plain file"
    try:
        content, is_whole = unsealed(path)
    except SwellError:
        return {}, f"{path.name} cannot be read as JSON"
    return content, f"{path.name} was changed after it was written" if is_whole is False else ""


def read_head(path: Path, size: int = 1000) -> str:
    """The start of a file, or nothing."""
    if not is_plain_file(path):
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""


def last_line(path: Path) -> str:
    """The last line of a file that says something, or nothing."""
    if not is_plain_file(path):
        return ""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((clean_text(line) for line in reversed(lines) if clean_text(line)), "")


def read_log(directory: Path, kind: Kind = ENV_RUN) -> tuple[RunLog, str]:
    """The curves of a run, and what is wrong with its log."""
    lines, reading_lines = _thinned_lines(directory / "metrics.jsonl")
    evaluation_lines, _ = _thinned_lines(directory / "evaluations.jsonl")
    rows, damaged = _parsed(lines, kind)
    rows = _in_order(rows)
    reading_rows = _in_order(_parsed(reading_lines, kind)[0], "reading")
    evaluations = _in_order(_parsed(evaluation_lines, kind)[0], "evaluation_score")
    batch = _column(rows, "batch")
    planned = finite_number(rows[-2].get("planned_batch")) if len(rows) > 1 else None
    if planned is not None:
        batch[-1] = planned
    seconds = {phase: finite_number((rows or [{}])[-1].get(f"seconds_{phase}")) for phase in kind.phases}
    log = RunLog(
        clock=_column(rows, "clock"),
        wall_seconds=_rising(_column(rows, "wall_seconds")),
        training_seconds=_rising(np.sum([_column(rows, f"seconds_{phase}") for phase in kind.phases], axis=0)),
        gradient_steps=_rising(_column(rows, "gradient_steps")),
        score=_column(rows, "score"),
        ess=_column(rows, "ess"),
        batch=batch,
        reading_clock=_column(reading_rows, "clock"),
        readings=_column(reading_rows, "reading"),
        evaluation_clock=_column(evaluations, "clock"),
        evaluation_scores=_column(evaluations, "evaluation_score"),
        signal=clean_text((reading_rows or rows or [{}])[-1].get("signal", "")),
        seconds={phase: value for phase, value in seconds.items() if value is not None},
    )
    problems = [f"{damaged} damaged lines in metrics.jsonl"] if damaged else []
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        if os.path.lexists(directory / name) and not is_plain_file(directory / name):
            problems.append(f"{name} is not a plain file")
    return log, "; ".join(problems)


def _thinned_lines(path: Path) -> tuple[list[bytes], list[bytes]]:
    """About evenly spaced lines of a log of any length, its last two among them; and the same of those with a reading.

    In one pass and bounded memory: whenever too many are kept, every second one goes.
    """
    kept, with_reading = _Thinned(), _Thinned()
    before = last = b""
    if is_plain_file(path):
        try:
            with open(path, "rb") as file:
                for line in iter(lambda: file.readline(LONGEST_LINE), b""):
                    if len(line) == LONGEST_LINE:  # a file of zeros has no end that is worth waiting for
                        kept.lines.append(b"no row\n")
                        break
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


def _parsed(lines: Iterable[bytes], kind: Kind) -> tuple[list[Row], int]:
    """The rows under the reader's names, and how many lines are none.

    Half a line at the end is how a killed run stops, not damage.
    """
    rows: list[Row] = []
    damaged = 0
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(kind.translated(cast(Row, row)))
        elif line.strip() and line.endswith(b"\n"):
            damaged += 1
    return rows, damaged


def _in_order(rows: Sequence[Row], name: str = "clock") -> list[Row]:
    """Rows whose clock goes forward and that have a number of that name; others cannot be drawn."""
    ordered: list[Row] = []
    latest = -math.inf
    for row in rows:
        clock = finite_number(row.get("clock"))
        if clock is not None and clock > latest:
            ordered.append(row)
            latest = clock
    return [row for row in ordered if finite_number(row.get(name)) is not None]


def _column(rows: Sequence[Row], name: str) -> Array:
    numbers = (finite_number(row.get(name)) for row in rows)
    return np.array([math.nan if number is None else number for number in numbers], dtype=np.float64)


def _rising(values: Array) -> Array:
    """A clock never goes back."""
    return np.fmax.accumulate(values) if values.size else values
