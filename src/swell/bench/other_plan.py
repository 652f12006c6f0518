"""Refuses a directory that holds runs of another plan, before anything is added to it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from swell.bench.plan import RUNS, PlannedRun
from swell.bench.worker import finished_summary
from swell.config.run_config import config_from_dict
from swell.errors import ConfigError, StorageError, SwellError
from swell.runs.run_directory import read_json

UNPLANNED = ("ramp_from", "threads")
"""Fields that may differ from the plan: a path that changes when a benchmark is moved, and a matter of the machine."""
SETTLED_LATER = ("scaler", "horizon", "ramp_order")
"""Fields that the plan of a control leaves open until its source has finished."""


def refuse_other_configs(runs: Sequence[PlannedRun], root: Path) -> None:
    """ConfigError if a run was begun with other options than planned, with a line for each option that differs."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for difference in config_differences(run, root):
            found.setdefault(difference, []).append(run.name)
    if found:
        raise ConfigError(
            *(f"{difference} in {names[0]}{_and_more(names)}" for difference, names in found.items()),
            f"{root} holds runs of another plan: choose another --out, or ask for the same options again",
        )


def config_differences(run: PlannedRun, root: Path) -> list[str]:
    """One line for each option of the run on disk that is not as planned; none if it is not there or unreadable."""
    try:
        path = run.directory(root) / "config.json"
        described = read_json(path).get("config") if path.exists() else None
    except StorageError:
        return []  # the attempt to continue it will say so, and the other runs go on
    if not isinstance(described, dict):
        return []
    try:
        stored = config_from_dict(cast("dict[str, Any]", described)).to_dict()
    except SwellError as error:
        return str(error).splitlines()
    planned, ignored = _planned(run, root)
    return [
        f"{name} is planned as {value!r}, but was {stored[name]!r}"
        for name, value in planned.items()
        if name not in ignored and stored[name] != value
    ]


def _planned(run: PlannedRun, root: Path) -> tuple[dict[str, Any], set[str]]:
    """The options that the plan asks for, and those of them that are open."""
    try:
        settled = run.source is None or finished_summary(root / RUNS / run.source) is not None
    except StorageError:
        settled = False
    planned = (run.settled(root) if settled else run.config).to_dict()
    resolved_later = () if planned["checkpoint_every"] else ("checkpoint_every",)
    return planned, {*UNPLANNED, *resolved_later, *(() if settled else SETTLED_LATER)}


def _and_more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
