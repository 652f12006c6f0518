"""What config.json says of a run, checked before anything is made of it. Nothing here imports torch."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swell.config.run_config import RunConfig, config_from_dict
from swell.errors import ConfigError, StorageError, SwellError, is_out_of_memory
from swell.runs.run_directory import read_description

REQUIRED = ("config", "threads", "versions")
KINDS: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("config", "versions", "started", "memory"), (dict, "an object")),
    **dict.fromkeys(("threads", "processes"), (int, "a whole number")),
    **dict.fromkeys(("device", "path", "machine"), (str, "a text")),
    "changes": (list, "a list"),
}
"""What a session writes, and the next one reads."""


def described_run(directory: Path) -> tuple[dict[str, Any], RunConfig]:
    """What config.json holds, and the config in it; one line says what is wrong with a file that someone changed."""
    path = directory / "config.json"
    described = read_description(directory, "env")
    missing = [f"{name} is missing" for name in REQUIRED if name not in described]
    wrong = [
        f"{name} must be {words}, got {described[name]!r:.60}"
        for name, (kind, words) in KINDS.items()
        if name in described and not isinstance(described[name], kind)
    ]
    if not missing and not wrong and "env" not in described["config"]:
        missing = ["env is missing in its config"]
    if faults := missing + wrong:
        raise StorageError(f"{path} is not as a run left it: {', '.join(faults)}")
    try:
        return described, config_from_dict(described["config"])
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {fault}" for fault in error.faults)) from error


@contextmanager
def fitting_together(directory: Path) -> Generator[None]:
    """Around the loading of a checkpoint into what config.json asks for; where it does not fit, one of them changed."""
    try:
        yield
    except SwellError:
        raise
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if is_out_of_memory(error):
            raise
        first = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
        raise StorageError(
            f"the checkpoints in {directory} are not of the run that its config.json describes ({first}); "
            "if config.json was edited, undo that: `swell resume --set` changes what can be changed"
        ) from error
