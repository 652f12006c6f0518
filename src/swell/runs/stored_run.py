"""What a run that goes on was: from `config.json` or, where that is damaged, from the newest good checkpoint."""

import os
from pathlib import Path
from typing import Any

from swell.config.run_config import RunConfig
from swell.config.validation import unmet_fields
from swell.errors import StorageError
from swell.memory.plan import MemoryPlan
from swell.runs.checkpoint import Report, load_newest
from swell.runs.description import CONFIG, Kind, checked, read_description
from swell.runs.run_directory import RunLock, set_aside
from swell.runs.sealed import DamagedError, write_sealed


def sound_description(directory: Path, kind: Kind, report: Report, restore: bool = False) -> dict[str, Any]:
    """As `read_description`; where config.json is damaged or lost, what a checkpoint says, which can be restored."""
    try:
        return read_description(directory, kind)
    except DamagedError as error:
        fault = error
    try:
        found = load_newest(directory / "checkpoints", report)
    except StorageError as error:
        raise StorageError(f"{fault}; and {error}") from error
    if found is None or not isinstance(found[1].get("description"), dict):
        raise StorageError(f"{fault}; no checkpoint holds it either: start again with --new") from fault
    described = checked(found[1]["description"], directory, kind)
    if restore:
        with RunLock(directory):
            aside = f"moved to {set_aside(directory / CONFIG).name} and " if os.path.lexists(directory / CONFIG) else ""
            write_sealed(directory / CONFIG, described)
        fault = f"{fault}; {aside}restored"
    report(f"{fault}; what counts is what the checkpoint of env step {found[0]:,} says")
    return described


def stored_plan(described: dict[str, Any], config: RunConfig, directory: Path) -> MemoryPlan | None:
    """What was decided about memory when the run began."""
    if "memory" not in described:
        return None
    try:
        plan = MemoryPlan(**described["memory"])
        faults = [f"{name} must be {expected}" for name, expected in unmet_fields(plan).items()]
    except TypeError as error:
        raise StorageError(f"{directory / CONFIG} has no memory plan in it: {error}") from error
    if faults or min(plan.micro_batch_size, plan.longest_horizon) < 1:
        raise StorageError(f"{directory / CONFIG}: memory: {'; '.join(faults) or 'sizes must be at least 1'}")
    if config.scaler != "ramp" and plan.longest_horizon > config.longest_horizon:
        raise StorageError(f"{directory / CONFIG}: memory: longest_horizon is more than its config allows")
    return plan
