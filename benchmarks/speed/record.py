"""What was measured, as JSON beside the page: any row can be measured again, and the others stay."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .table import Bar, Comparison, Figure, Limit, Result, Skipped

KINDS = {kind.__name__.lower(): kind for kind in (Comparison, Limit, Figure, Skipped)}
OF_A_GO = ("date", "swell", "blocks")
"""What of a machine's description each go of the command has for itself."""


@dataclass(frozen=True)
class Measured:
    """What one name of `--only` gave when it was last measured, and where and when that was."""

    results: Sequence[Result]
    machine: Mapping[str, str]


def read_record(path: Path) -> dict[str, Measured]:
    """By the names of `--only`; empty if nothing was measured yet."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())["measured"]
    return {
        name: Measured([_result(row) for row in row_set["rows"]], row_set["machine"]) for name, row_set in rows.items()
    }


def write_record(path: Path, measured: Mapping[str, Measured]) -> None:
    rows = {
        name: {"machine": dict(one.machine), "rows": [_row(result) for result in one.results]}
        for name, one in measured.items()
    }
    path.write_text(json.dumps({"measured": rows}, indent=1) + "\n")


def _row(result: Result) -> dict[str, Any]:
    return {"kind": type(result).__name__.lower(), **dataclasses.asdict(result)}


def _result(row: Mapping[str, Any]) -> Result:
    fields = {name: value for name, value in row.items() if name != "kind"}
    if fields.get("bar"):
        fields["bar"] = Bar(**fields["bar"])
    if "load" in fields:
        fields["load"] = tuple(fields["load"])
    return KINDS[row["kind"]](**fields)


def newest(measured: Mapping[str, Measured]) -> Mapping[str, str]:
    """The machine and the versions of the latest go."""
    return max((one.machine for one in measured.values()), key=lambda machine: machine["date"])


def goes(measured: Mapping[str, Measured]) -> list[tuple[str, ...]]:
    """A line for each name: when it was measured, at which commit, in what turns, and on what other than the newest."""
    latest = newest(measured)
    return [
        (name, *(one.machine[key] for key in OF_A_GO), _differences(one.machine, latest))
        for name, one in measured.items()
    ]


def _differences(machine: Mapping[str, str], latest: Mapping[str, str]) -> str:
    names = [name for name in latest if name not in OF_A_GO and machine.get(name) != latest[name]]
    return ", ".join(f"{name} {machine.get(name, 'unknown')}" for name in names) or "–"
