"""Presets of one's own: TOML files with options of `swell train`, which start from a recipe that Swell has.

    preset = "ppo-classic"        # the recipe; left out, the usual one for the algorithm and the env
    about = "small and quick"     # a line for people
    learning_rate = 3e-4
    hidden = [64, 64]
    target_kl = "none"            # TOML has no none of its own

Every fault of a file is told at once, each with its name. `presets.py` makes configs of what is read here.
"""

import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from swell.config.run_config import RunConfig
from swell.config.validation import did_you_mean
from swell.errors import ConfigError, StorageError

SUFFIX = ".toml"
OF_THE_FILE = ("preset", "about")
"""Keys that are no options: the recipe to start from, and a line for people."""
NOT_IN_FILES = {"env": "name it on the command line", "seed": "a preset is for every seed", "label": "it is of a run"}
SHORT_NAMES = {"steps": "total_env_steps"}
LARGEST_BYTES = 1 << 20


@dataclass(frozen=True)
class PresetFile:
    """What a file says."""

    recipe: str
    options: Mapping[str, Any]
    """By their full names; whoever makes a config of them checks their values."""
    faults: tuple[str, ...]
    """What is wrong with its keys."""


def is_preset_file(name: str) -> bool:
    """Whether the name of a preset is that of a file."""
    return name.endswith(SUFFIX)


def read_preset_file(path: str) -> PresetFile:
    """The recipe and the options of a file; ConfigError if it is no TOML at all."""
    table = _table(Path(path))
    options: dict[str, Any] = {}
    faults: list[str] = []
    for key, value in table.items():
        name = SHORT_NAMES.get(key, key)
        if fault := _fault(key, name, value, options):
            faults.append(fault)
        elif key not in OF_THE_FILE:
            options[name] = _plain(value)
    named = table.get("preset")
    recipe = named if isinstance(named, str) and named and not is_preset_file(named) else "auto"
    return PresetFile(recipe, options, tuple(faults))


def _fault(key: str, name: str, value: Any, options: Mapping[str, Any]) -> str | None:
    """What is wrong with a key, whatever its option may be set to."""
    known = [field.name for field in fields(RunConfig)]
    if name in NOT_IN_FILES:
        return f"{name} has no place in a preset: {NOT_IN_FILES[name]}"
    if key in OF_THE_FILE and (not isinstance(value, str) or not value):
        return f"{key} must be a text, got {value!r}"
    if key == "preset" and is_preset_file(value):
        return f"preset must be a recipe that `swell presets` lists, got the file {value}"
    if key not in OF_THE_FILE and name not in known:
        return f"unknown option {key}{did_you_mean(key, [*known, *OF_THE_FILE])}"
    if _has_table(value):
        return f"{key} must not be a table: the options of a preset stand one a line, without headings"
    return f"{name} is given twice, as {key} too" if name in options else None


def write_preset_file(path: Path, recipe: str, options: Mapping[str, Any], remarks: Sequence[str] = ()) -> None:
    """A file that `read_preset_file` takes, replaced in one step; the remarks are comments on top."""
    lines = [*(f"# {remark}" for remark in remarks), f"preset = {_written(recipe)}"]
    lines += [f"{name} = {_written(value)}" for name, value in options.items()]
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _table(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ConfigError(f"preset {path}: there is no such file")
    if not path.is_file():
        raise ConfigError(f"preset {path}: it is not a plain file")
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ConfigError(f"preset {path}: it has more than {LARGEST_BYTES:,} bytes, which no preset needs")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"preset {path}: it cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"preset {path}: it is not a text in UTF-8") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"preset {path}: it is not TOML: {error or 'too deep'}") from error


def _has_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_table, cast("list[Any]", value))))


def _plain(value: Any) -> Any:
    """Lists as settings have them, and none, which TOML can only spell as a text."""
    if isinstance(value, list):
        return tuple(map(_plain, cast("list[Any]", value)))
    return None if value in ("none", "None") else value


def _written(value: Any) -> str:
    """A value as TOML; a JSON text is also a TOML text."""
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'"{value}"'
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_written, cast('list[Any]', value)))}]"
    return json.dumps(value, ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )  # which TOML wants escaped and JSON does not
