"""JSON files with a digest of themselves: `config.json` and `summary.json`. A changed byte is noticed."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from swell.errors import StorageError
from swell.runs.run_directory import as_json, parse_object, read_plain, replace_durably, storage_errors

DIGEST = "digest"


class DamagedError(StorageError):
    """A sealed file is not what was written."""


def write_sealed(path: Path, payload: dict[str, Any]) -> None:
    """Replace `path` in one step. What is not finite becomes null."""
    with storage_errors("write", path):
        replace_durably(path, sealed(payload))


def sealed(payload: dict[str, Any]) -> bytes:
    """The only bytes that are a sealed file with this content."""
    fields = as_json({name: value for name, value in payload.items() if name != DIGEST})
    digest = hashlib.sha256(json.dumps(fields, allow_nan=False).encode()).hexdigest()
    return (json.dumps({**fields, DIGEST: digest}, indent=2, allow_nan=False) + "\n").encode()


def read_sealed(path: Path) -> dict[str, Any]:
    """The content of a sealed file; a DamagedError if it is not what was written."""
    try:
        content, is_whole = unsealed(path)
    except StorageError as error:
        raise DamagedError(str(error)) from error
    if not is_whole:
        raise DamagedError(f"{path} was changed or damaged: it does not match its own digest")
    return content


def unsealed(path: Path) -> tuple[dict[str, Any], bool | None]:
    """The content of a JSON file, and whether it is as it was sealed; None if it never was."""
    raw = read_plain(path)
    content = parse_object(str(path), raw)
    try:
        is_whole = raw == sealed(content) if DIGEST in content else None
    except RecursionError:
        is_whole = False
    content.pop(DIGEST, None)
    return content, is_whole


def read_summary(directory: Path) -> dict[str, Any]:
    """The summary of a run, empty if there is none; a DamagedError if it is not what was written.

    Those of earlier versions have no digest, and are taken as they are.
    """
    path = directory / "summary.json"
    if not os.path.lexists(path):
        return {}
    try:
        summary, is_whole = unsealed(path)
    except StorageError as error:
        raise DamagedError(str(error)) from error
    counts = [summary[name] for name in ("env_steps", "completions") if name in summary]
    if is_whole is False or not isinstance(summary.get("status"), str) or not all(type(n) is int for n in counts):
        raise DamagedError(f"{path} was changed or damaged")
    return summary
