"""The folder of a run: making it, locking it, naming it, and the text files that are written into it."""

import contextlib
import json
import math
import os
import re
import secrets
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Generator
from io import FileIO
from pathlib import Path
from typing import Any, Literal, cast

from swell.errors import ConfigError, InUseError, StorageError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_NAME = "run.lock"
_KINDS = {"env": ("in an env", "swell resume"), "llm": ("of a language model", "swell llm resume")}
_held_locks: set[int] = set()


def create_run_directory(path: Path, resume_command: str = "swell resume") -> None:
    """Make a new, empty and writable run directory, with its parents. A directory that holds anything is refused."""
    with storage_errors("make run directory", path):
        require_free(path, resume_command)
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            sync_directory(path.parent)


def require_free(path: Path, resume_command: str = "swell resume") -> None:
    """A ConfigError where a directory holds anything; what is no directory is for the system to refuse."""
    if not path.is_dir() or _is_free(path):
        return
    if (path / "config.json").exists():
        raise ConfigError(f"{path} already holds a run; continue it with {typed(resume_command, path)} or add `--new`")
    raise ConfigError(f"{path} is not empty, and what is in it is no run; name another directory, or add `--new`")


def typed(command: str, directory: str | Path) -> str:
    """A command for a run as one types it, whatever its directory is called."""
    return f"`{command} {shlex.quote(str(directory))}`"


def next_free(path: Path) -> Path:
    """`path` itself if no run is there, else the first free one of `name-2`, `name-3`, …"""
    candidate, number = path, 1
    while not _is_free(candidate):
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def default_run_name(env_id: str, algorithm: str, scaler: str, seed: int) -> str:
    """`ALE/Pong-v5`, `pqn`, `adaptive`, 1 -> `Pong-v5-pqn-adaptive-s1`: one plain path component, whatever goes in."""
    env_name = re.split(r"[/\\]", env_id.rstrip("/\\"))[-1]
    return "-".join([*(plain_name(part) for part in (env_name, algorithm, scaler)), f"s{seed}"])


def write_json_atomic(path: Path, payload: dict[str, Any]) -> None:
    """Replace `path` in one step: a reader sees the old file or the new one. What is not finite becomes null."""
    temporary = path.with_name(f".{path.name}.tmp")
    text = json.dumps(_finite(payload), indent=2, allow_nan=False) + "\n"
    with storage_errors("write", path):
        try:
            write_durably(temporary, text.encode())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; one line says what is wrong with a file that has none."""
    with storage_errors("read", path):
        data = path.read_bytes()
    return _parse_object(str(path), data)


def read_description(directory: Path, kind: Literal["env", "llm"] | None = None) -> dict[str, Any]:
    """The config.json of a run, of this kind if one is given: each kind has commands of its own."""
    if not (directory / "config.json").exists():
        raise ConfigError(f"{str(directory)!r} holds no run: there is no config.json in it")
    described = read_json(directory / "config.json")
    found = described.get("kind", "env")
    if kind is not None and found != kind:
        what, command = _KINDS["llm" if found == "llm" else "env"]
        raise ConfigError(f"{directory} holds a run {what}; go on with {typed(command, directory)}")
    return described


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON lines file; a torn last line is left out, and a file that is not there has no rows."""
    with storage_errors("read", path):
        *lines, last = path.read_bytes().split(b"\n") if path.exists() else [b""]
    rows = [_parse_object(f"{path} line {number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    with contextlib.suppress(StorageError):  # only an interrupted write leaves a last line without its newline
        rows.append(_parse_object(str(path), last))
    return rows


def write_durably(path: Path, data: bytes) -> None:
    """Write a whole file and wait until it is on the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory (new files, renames) are on the disk."""
    if sys.platform == "win32":
        return  # Windows cannot open a directory
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def storage_errors(action: str, path: Path) -> Generator[None]:
    """Turn what the system refuses into one line that names the path and the reason."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise StorageError(f"cannot {action} {str(path)!r}: {reason}") from error


class RunLock:
    """Held while a process works in a run directory; the kernel drops it when the process ends, even by kill -9."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1

    def __enter__(self) -> "RunLock":
        path = self._directory / LOCK_NAME
        with storage_errors("lock", path), contextlib.ExitStack() as on_failure:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            on_failure.callback(os.close, descriptor)
            if not _try_lock(descriptor):
                raise InUseError(f"{self._directory} is in use by {_read_holder(path)}; wait for it or stop it")
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
            on_failure.pop_all()
            self._descriptor = descriptor
            _held_locks.add(descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor in _held_locks:  # not in a forked child, where it is closed already
            _held_locks.remove(self._descriptor)
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)


class JsonLines:
    """A log of one JSON object a line. A line is there whole or not at all; opening cuts off a torn last line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage_errors("open", path):
            self._file: FileIO = open(path, "a+b", buffering=0)  # noqa: SIM115
            self._cut(_end_of_last_line(self._file))
            sync_directory(path.parent)

    @property
    def offset(self) -> int:
        """Bytes of whole lines so far; a checkpoint stores it, and `truncate_to` goes back to it."""
        return self._offset

    def write(self, row: dict[str, Any]) -> None:
        """Append one line and hand it to the system; numbers that are not finite become null."""
        line = (json.dumps(_finite(row), allow_nan=False) + "\n").encode()
        with storage_errors("write", self.path):
            try:
                self._append(line)
            except OSError:
                self._file.truncate(self._offset)
                raise
        self._offset += len(line)

    def sync(self) -> None:
        """Wait until every line is on the disk; do this before a checkpoint stores `offset`."""
        with storage_errors("write", self.path):
            os.fsync(self._file.fileno())

    def truncate_to(self, offset: int) -> None:
        """Forget what was logged after `offset`, so that a resumed run logs it again without duplicates."""
        if not 0 <= offset <= self._offset:
            raise StorageError(f"{self.path} has {self._offset} bytes, but had {offset} when the checkpoint was saved")
        with storage_errors("cut back", self.path):
            if _end_of_last_line(self._file, offset) != offset:
                raise StorageError(f"{self.path} was edited: no line ends at byte {offset}, where the checkpoint is")
            self._cut(offset)

    def close(self) -> None:
        self._file.close()

    def _append(self, line: bytes) -> None:
        written = 0
        while written < len(line):  # an unbuffered write may be short, on a full disk above all
            written += self._file.write(line[written:])

    def _cut(self, offset: int) -> None:
        if os.fstat(self._file.fileno()).st_size != offset:  # truncating to the same size would touch the file
            self._file.truncate(offset)
            os.fsync(self._file.fileno())
        self._offset = offset


class NoLines:
    """The log of a process that is not the one to write it."""

    offset = 0

    def write(self, row: dict[str, Any]) -> None: ...

    def sync(self) -> None: ...

    def truncate_to(self, offset: int) -> None: ...

    def close(self) -> None: ...


def _is_free(path: Path) -> bool:
    """Nothing is there, or a directory without content; a lock file alone is left by a run that never began."""
    with storage_errors("look into", path):
        names = os.listdir(path) if path.is_dir() else [""]
    return set(names) <= {LOCK_NAME} or not os.path.lexists(path)


def plain_name(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", part)[:80].strip(".-") or "unnamed"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in cast("list[Any]", value)]
    if hasattr(value, "tolist"):  # a numpy or torch number or array
        return _finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parse_object(where: str, data: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{where} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise StorageError(f"{where} is not a JSON object")
    return cast("dict[str, Any]", parsed)


def _end_of_last_line(file: FileIO, limit: int = -1) -> int:
    """The largest offset, at most `limit`, that is 0 or follows a newline."""
    file.seek(0)
    return file.read(limit).rfind(b"\n") + 1


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # past the text, which others must be able to read
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            os.lseek(descriptor, 0, os.SEEK_SET)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _read_holder(path: Path) -> str:
    for _ in range(50):  # the holder writes its name just after it gets the lock
        with contextlib.suppress(OSError, ValueError):
            if holder := path.read_text():
                return holder
        time.sleep(0.01)
    return "another process"


def _close_inherited_locks() -> None:
    for descriptor in _held_locks:
        os.close(descriptor)
    _held_locks.clear()


if sys.platform != "win32":
    # A forked env worker would share the lock, and outlive its parent with it.
    os.register_at_fork(after_in_child=_close_inherited_locks)


def tracked_identity(directory: Path) -> str:
    """The name by which trackers know the run, drawn once and kept, so that a resumed run goes on as the same one."""
    path = directory / "trackers.json"
    known = read_json(path).get("id") if path.exists() else None
    if isinstance(known, str):
        return known
    identity = secrets.token_hex(6)
    write_json_atomic(path, {"id": identity})
    return identity
