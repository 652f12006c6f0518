"""What each fault led to: a row, written to a CSV as soon as it is known."""

import csv
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One try."""

    number: int
    subject: str
    """What was hit: a run, a file, a write, a phase, or who typed what where."""
    fault: str
    exit_code: int
    line: str
    """The last line that the command printed."""
    outcome: str
    """In few words what came of it; rows are counted by it."""
    held: bool
    """Whether that is what Swell promises."""
    faults: int = 1
    """How many were put into this one try."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how many tries there are, and how the n-th is made. The n-th is the same on every machine."""

    tries: int
    attempt: Callable[[int], Row]


def read_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return sorted(map(_row, csv.DictReader(file)), key=lambda row: row.number)


def append_row(path: Path, row: Row) -> None:
    is_new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Row)])
        if is_new:
            writer.writeheader()
        writer.writerow({**asdict(row), "held": "yes" if row.held else "no"})


def faults_in(rows: Iterable[Row]) -> int:
    return sum(row.faults for row in rows)


def _row(cells: dict[str, str]) -> Row:
    numbers = {name: int(cells[name]) for name in ("number", "exit_code", "faults")}
    texts = {name: cells[name] for name in ("subject", "fault", "line", "outcome")}
    return Row(**numbers, **texts, held=cells["held"] == "yes")
