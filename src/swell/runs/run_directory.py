"""The folder of a run: making it, locking it, naming it, and the text files that are written into it."""

import contextlib
import itertools
import json
import math
import os
import re
import secrets
import shlex
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

from swell.errors import ConfigError, InUseError, StorageError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_NAME = "run.lock"
LARGEST_JSON = 2**26
"""In bytes; no file of ours comes near."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""What the lock file's name led to would be emptied; Windows has no such flag."""
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
    if any(os.path.lexists(path / name) for name in ("config.json", "checkpoints")):
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
    text = json.dumps(as_json(payload), indent=2, allow_nan=False) + "\n"
    with storage_errors("write", path):
        replace_durably(path, text.encode())


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a file in one step, and wait until that is on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # whatever it is, we would write into it
    try:
        write_durably(temporary, data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; one line says what is wrong with a file that has none."""
    return parse_object(str(path), read_plain(path))


def read_plain(path: Path, largest: int = LARGEST_JSON) -> bytes:
    """The bytes of a file that is a file: a pipe would hang, and one of many gigabytes fill the memory."""
    with storage_errors("read", path):
        size = path.stat().st_size
        require_plain_file(path.resolve())
        if size > largest:
            raise StorageError(f"{path} is not what it was: it has {size:,} bytes")
        return path.read_bytes()


def is_plain_file(path: Path) -> bool:
    """A plain file that is no link: a pipe would hang, and a link may lead anywhere."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False


def require_plain_file(path: Path) -> None:
    if not is_plain_file(path):
        raise StorageError(f"{path} is not a plain file; move it away")


def set_aside(path: Path) -> Path:
    """Renames what is damaged to `bad-…`, so that nothing is lost and its name is free."""
    names = itertools.chain([f"bad-{path.name}"], (f"bad-{path.name}-{number}" for number in itertools.count(2)))
    aside = next(aside for aside in map(path.with_name, names) if not os.path.lexists(aside))
    os.replace(path, aside)
    return aside


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
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o644)
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


def _is_free(path: Path) -> bool:
    """Nothing is there, or a directory without content; a lock file alone is left by a run that never began."""
    with storage_errors("look into", path):
        names = os.listdir(path) if path.is_dir() else [""]
    return set(names) <= {LOCK_NAME} or not os.path.lexists(path)


def plain_name(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", part)[:80].strip(".-") or "unnamed"


def as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): as_json(entry) for key, entry in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in cast("list[Any]", value)]
    if hasattr(value, "tolist"):  # a numpy or torch number or array
        return as_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse_object(where: str, data: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{where} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise StorageError(f"{where} is not a JSON object")
    return cast("dict[str, Any]", parsed)


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
