"""The logs of a run: one JSON object a line, with a mark that says what they held when a checkpoint was saved."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

from swell.errors import StorageError
from swell.runs.run_directory import (
    as_json,
    is_plain_file,
    parse_object,
    require_plain_file,
    set_aside,
    storage_errors,
    sync_directory,
)

MOST_LINES_WAITING = 10_000
"""For a disk that has room again, or an end; what waits is held in memory."""
LONGEST_LINE = 2**24
"""In bytes; no row comes near, and a file of zeros has no line at all."""
BLOCK = 2**20

Mark = dict[str, Any]
"""Bytes and SHA-256 of the lines so far. A checkpoint stores it, and a log that is opened at it goes on from there."""
Report = Callable[[str], None]
"""Receives one line for the user."""


class RunGoneError(StorageError):
    """What the run writes was deleted or moved away under it: trying again cannot help."""


class JsonLines:
    """A log of one JSON object a line. A line is there whole or not at all.

    Opened at a mark, it forgets what came after. Where what came before is not what it was, the file is set aside and
    the log begins anew: a run is worth more than its log.
    """

    def __init__(self, path: Path, mark: Mark | None = None, report: Report = lambda _: None) -> None:
        self.path = path
        self._report = report
        self._waiting: list[bytes] = []
        self._sha256 = hashlib.sha256()
        self._offset = 0
        with storage_errors("open", path):
            if (found := _verified(path, mark)) is not None:
                self._sha256, self._offset = found
            elif mark is not None and os.path.lexists(path):
                report(
                    f"{path} is not the log that the checkpoint knows; moved to {set_aside(path).name}, a new begins"
                )
            elif mark is not None:
                report(f"{path} is lost; a new log begins")
            elif os.path.lexists(path):
                require_plain_file(path)
            self._file: FileIO = open(path, "a+b", buffering=0)  # noqa: SIM115
            self._cut()
            sync_directory(path.parent)

    @property
    def mark(self) -> Mark:
        """Of what is on file; after `sync`, that is every line."""
        return {"bytes": self._offset, "sha256": self._sha256.hexdigest()}

    def write(self, row: dict[str, Any]) -> None:
        """Append one line and hand it to the system; numbers that are not finite become null.

        What the disk does not take waits for the next line or for `sync`, which does not put up with it.
        """
        self._waiting.append((json.dumps(as_json(row), allow_nan=False) + "\n").encode())
        try:
            self._flush()
        except RunGoneError:
            raise
        except StorageError as error:
            if len(self._waiting) > MOST_LINES_WAITING:
                raise
            if len(self._waiting) == 1:
                self._report(f"{error}; the line is kept and written as soon as that is possible")

    def sync(self) -> None:
        """Wait until every line is on the disk; do this before a checkpoint stores `mark`."""
        self._flush()
        with storage_errors("write", self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _flush(self) -> None:
        self._require_in_place()
        with storage_errors("write", self.path):
            while self._waiting:
                try:
                    self._append(self._waiting[0])
                except OSError:
                    self._file.truncate(self._offset)
                    raise
                line = self._waiting.pop(0)
                self._sha256.update(line)
                self._offset += len(line)

    def _append(self, line: bytes) -> None:
        written = 0
        while written < len(line):  # an unbuffered write may be short, on a full disk above all
            written += self._file.write(line[written:])

    def _require_in_place(self) -> None:
        """A file that was deleted takes lines as any other, and they are lost with it."""
        try:
            there, ours = os.stat(self.path), os.fstat(self._file.fileno())
            if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        if self.path.parent.is_dir():
            raise RunGoneError(f"{self.path} was deleted or replaced under the run, which `swell resume` continues")
        raise RunGoneError(f"{self.path.parent} was deleted or moved away under the run, which ends here")

    def _cut(self) -> None:
        if os.fstat(self._file.fileno()).st_size != self._offset:  # truncating to the same size would touch the file
            self._file.truncate(self._offset)
            os.fsync(self._file.fileno())


class NoLines:
    """The log of a process that is not the one to write it."""

    @property
    def mark(self) -> Mark:
        return {}

    def write(self, row: dict[str, Any]) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON lines file; a torn last line is left out, and a file that is not there has no rows."""
    if not os.path.lexists(path):
        return []
    rows: list[dict[str, Any]] = []
    with storage_errors("read", path):
        require_plain_file(path)
        with open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                if not line.endswith(b"\n"):  # only an interrupted write leaves a last line without its newline
                    with contextlib.suppress(StorageError):
                        rows.append(parse_object(str(path), line))
                    if len(line) == LONGEST_LINE:
                        raise StorageError(f"{path} line {number} is longer than any row")
                elif line.strip():
                    rows.append(parse_object(f"{path} line {number}", line))
    return rows


def _verified(path: Path, mark: Mark | None) -> tuple[Any, int] | None:
    """The digest of what is before the mark, and where that is; None if it is not what it was."""
    if mark is None or not mark["bytes"] >= 0:
        return None
    left, sha256 = mark["bytes"], hashlib.sha256()
    if not is_plain_file(path):
        return (sha256, 0) if left == 0 and not os.path.lexists(path) else None
    with open(path, "rb") as file:
        while left and (block := file.read(min(left, BLOCK))):
            sha256.update(block)
            left -= len(block)
    return None if left or sha256.hexdigest() != mark["sha256"] else (sha256, mark["bytes"])
