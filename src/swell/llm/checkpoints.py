"""Checkpoints are Hugging Face's own folders. The last file written into one is the seal.

Without it the folder may be half a checkpoint; with it a resumed run knows how far its logs are true.
"""

import contextlib
import shutil
from pathlib import Path
from typing import Any

from swell.errors import SwellError
from swell.llm.trainer import STATE_NAME
from swell.runs.run_directory import read_json

SEAL_NAME = "swell_run.json"


def newest_checkpoint(directory: Path, moves: bool) -> tuple[Path, dict[str, Any]] | None:
    """The newest whole checkpoint of a run and its seal; `moves` where it must know a moving batch."""
    for path in sorted(directory.glob("checkpoint-*"), key=_number, reverse=True):
        needed = [SEAL_NAME, "trainer_state.json", *([STATE_NAME] if moves else [])]
        with contextlib.suppress(SwellError):
            seal, *_ = (read_json(path / name) for name in needed)
            return path, seal
    return None


def remove_torn_checkpoints(directory: Path, newest: tuple[Path, dict[str, Any]] | None) -> list[str]:
    """Those that a kill left unfinished, which would count as kept ones from now on; one line for each."""
    last = _number(newest[0]) if newest else -1
    torn = [path for path in directory.glob("checkpoint-*") if path.is_dir() and _number(path) > last]
    for path in torn:
        shutil.rmtree(path)
    return [f"{path.name} was not finished and is removed" for path in torn]


def _number(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1
