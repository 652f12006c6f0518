"""What a run is, as its `config.json` says: read with care, and restored from a checkpoint where it is damaged."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from swell.config.run_config import RunConfig, config_from_dict
from swell.config.validation import unmet_fields
from swell.errors import ConfigError, StorageError
from swell.memory.plan import MemoryPlan
from swell.runs.checkpoint import load_newest
from swell.runs.run_directory import RunLock, set_aside
from swell.runs.sealed import DamagedError, read_sealed, write_sealed

Kind = Literal["env", "llm"]
Report = Callable[[str], None]
CONFIG = "config.json"
KINDS = {"env": ("in an env", "swell resume"), "llm": ("of a language model", "swell llm resume")}
MOST_THREADS = 4096
NEEDED: dict[str, type] = {"config": dict, "versions": dict, "threads": int}
OPTIONAL: dict[str, type] = {
    **{"memory": dict, "spaces": dict, "started": dict, "changes": list, "asked": dict},
    **{"processes": int, "path": str, "device": str, "machine": str, "network": str, "resume": str},
}


def read_description(directory: Path, kind: Kind | None = None) -> dict[str, Any]:
    """The config.json of a run, of this kind if one is given: each kind has commands of its own."""
    path = directory / CONFIG
    if not os.path.lexists(path):
        if (directory / "checkpoints").is_dir():
            raise DamagedError(f"{path} is lost")
        raise ConfigError(f"{str(directory)!r} holds no run: there is no config.json in it")
    return _checked(read_sealed(path), directory, kind)


def sound_description(directory: Path, kind: Kind, report: Report, restore: bool = False) -> dict[str, Any]:
    """The same; where config.json is damaged or lost, what the newest good checkpoint says, which can be restored."""
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
    described = _checked(found[1]["description"], directory, kind)
    if restore:
        with RunLock(directory):
            aside = f"moved to {set_aside(directory / CONFIG).name} and " if os.path.lexists(directory / CONFIG) else ""
            write_sealed(directory / CONFIG, described)
        fault = f"{fault}; {aside}restored"
    report(f"{fault}; what counts is what the checkpoint of env step {found[0]:,} says")
    return described


def stored_config(described: dict[str, Any], directory: str | Path) -> RunConfig:
    """The config of a run. Whoever changed it was not its user on the command line, so a fault is one of the file."""
    path = Path(directory) / CONFIG
    try:
        return config_from_dict(described["config"])
    except ConfigError as error:
        raise StorageError(f"{path} is not of this Swell: {'; '.join(error.faults)}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise StorageError(f"{path} has no config of a run in it: {error}") from error


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


def _checked(described: dict[str, Any], directory: Path, kind: Kind | None) -> dict[str, Any]:
    """A description whose parts are of the right kind; whoever seals another one has no other answer than this line."""
    found = described.get("kind", "env")
    if kind is not None and found != kind:
        what, command = KINDS["llm" if found == "llm" else "env"]
        raise ConfigError(f"{directory} holds a run {what}; go on with `{command} {directory}`")
    faults = [
        f"{name} must be of type {of.__name__}" for name, of in NEEDED.items() if not _is(described.get(name), of)
    ]
    faults += [
        f"{name} must be of type {of.__name__}"
        for name, of in OPTIONAL.items()
        if described.get(name) is not None and not _is(described[name], of)
    ]
    if not faults and not 1 <= described["threads"] <= MOST_THREADS:
        faults = [f"threads must be at least 1 and at most {MOST_THREADS}"]
    if faults:
        raise StorageError(f"{directory / CONFIG}: {'; '.join(faults)}")
    return described


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
