"""What a run is, as its `config.json` says, read with care. Nothing here imports torch."""

import os
from pathlib import Path
from typing import Any, Literal

from swell.config.run_config import RunConfig, config_from_dict
from swell.errors import ConfigError, StorageError
from swell.runs.run_directory import typed
from swell.runs.sealed import DamagedError, read_sealed

Kind = Literal["env", "llm"]
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
    return checked(read_sealed(path), directory, kind)


def stored_config(described: dict[str, Any], directory: str | Path) -> RunConfig:
    """The config of a run. Whoever changed it was not its user on the command line, so a fault is one of the file."""
    path = Path(directory) / CONFIG
    try:
        return config_from_dict(described["config"])
    except ConfigError as error:
        raise StorageError(f"{path} is not of this Swell: {'; '.join(error.faults)}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise StorageError(f"{path} has no config of a run in it: {error}") from error


def checked(described: dict[str, Any], directory: Path, kind: Kind | None) -> dict[str, Any]:
    """A description whose parts are of the right kind; whoever seals another one has no other answer than this line."""
    found = described.get("kind", "env")
    if kind is not None and found != kind:
        what, command = KINDS["llm" if found == "llm" else "env"]
        raise ConfigError(f"{directory} holds a run {what}; go on with {typed(command, directory)}")
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
