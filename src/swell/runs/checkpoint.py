"""Atomic, verified checkpoints: tensors in safetensors, the rest in JSON, a sealed SHA-256 manifest, no pickle."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from swell.errors import OutOfMemoryError, StorageError
from swell.memory.system import free_memory
from swell.runs.run_directory import set_aside, storage_errors, sync_directory, write_durably
from swell.runs.state_tree import decode_tree, encode_tree

FORMAT = 6
MANIFEST, TREE, TENSORS = "MANIFEST.json", "state.json", "state.safetensors"
LARGEST_MANIFEST = 65536
UNDECODABLE = (ValueError, TypeError, LookupError, AssertionError, RuntimeError, ArithmeticError, struct.error)
"""What decoding raises where a tree is none of ours."""

Serialised = dict[str, bytes]
Report = Callable[[str], None]
"""Receives one line for the user."""


class UnknownFormatError(StorageError):
    """An intact checkpoint of another version of Swell; it is not bad, so it is never moved aside."""


def save_checkpoint(directory: Path, env_steps: int, state: dict[str, Any]) -> Path:
    """Save `state` as `directory/step-<env_steps>`. It appears whole or not at all, and what is there stays until then.

    A state is a tree of dicts (keys: str or int), lists, tuples (come back as lists), tensors (come back on the CPU),
    numpy arrays and numbers, str, int, float, bool and None. Tensors under `learner` must be finite.
    """
    return write_checkpoint(directory, env_steps, serialise(env_steps, state))


def write_checkpoint(directory: Path, env_steps: int, contents: Serialised) -> Path:
    """The same with what was made of a state before."""
    target = directory / checkpoint_name(env_steps)
    temporary = directory / f".tmp-{env_steps}-{os.getpid()}"
    with storage_errors(f"save {_disk_space(directory, contents)} as", target):
        _prepare(directory)
        try:
            if _read_if_verified(target) != contents:
                _write_all(temporary, contents)
                _publish(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Verify a checkpoint, then load it. A `StorageError` names the file and the reason."""
    contents = _read_verified(path)
    try:
        tensors = safetensors.torch.load(contents[TENSORS])
        _refuse_non_finite(tensors, f"{path}: ")
        return decode_tree(json.loads(contents[TREE]), tensors)
    except (*UNDECODABLE, SafetensorError) as error:
        raise StorageError(f"{path} cannot be decoded: {_one_line(error)}") from error


def load_newest(directory: Path, report: Report) -> tuple[int, dict[str, Any]] | None:
    """Env steps and state of the newest good checkpoint, or None if there are no checkpoints.

    Bad ones that are newer are renamed to `bad-…` and reported; if all are bad, nothing is touched.
    """
    faults: dict[Path, StorageError] = {}
    for env_steps, path in _checkpoints(directory):
        try:
            state = load_checkpoint(path)
        except UnknownFormatError:
            raise
        except StorageError as error:
            faults[path] = error
            continue
        for bad, fault in faults.items():
            _quarantine(bad, fault, report)
        return env_steps, state
    if faults:
        last = f"no good checkpoint in {directory}: all {len(faults)} are bad, none was changed; start again with --new"
        raise StorageError("\n".join([*map(str, faults.values()), last]))
    return None


def prune(directory: Path, report: Report, keep: int = 2, best: int | None = None) -> None:
    """Delete good checkpoints but the newest `keep` and the `best` one. Bad ones do not count and are left alone."""
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    verified = [(env_steps, path) for env_steps, path in _checkpoints(directory) if _read_if_verified(path)]
    wanted = {*list(dict.fromkeys(env_steps for env_steps, _ in verified))[:keep], best}
    for env_steps, path in verified:
        if env_steps not in wanted:
            _delete(env_steps, path, report)
        wanted.discard(env_steps)  # what follows at the same step was replaced


def checkpoint_name(env_steps: int) -> str:
    return f"step-{env_steps:012d}"


def _checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """Env steps and path, newest first by the step in the name; `old-step-…` was being replaced when the run died."""
    with storage_errors("read", directory):
        paths = list(directory.iterdir()) if directory.exists() else []
    found = [(step, path) for path in paths if (step := _step_of(path.name)) is not None]
    own = [(step, path) for step, path in found if path.is_dir() and not path.is_symlink()]
    return sorted(own, key=lambda entry: (entry[0], entry[1].name), reverse=True)


def _step_of(name: str) -> int | None:
    match = re.fullmatch(r"(?:old-)?(step-([0-9]{12,18}))", name)
    return int(match[2]) if match and match[1] == checkpoint_name(int(match[2])) else None


def serialise(env_steps: int, state: dict[str, Any]) -> Serialised:
    """The files of a checkpoint, which share memory with nothing."""
    tree, tensors = encode_tree(state)
    _refuse_non_finite(tensors, "cannot save: ")
    contents = {TENSORS: safetensors.torch.save(tensors), TREE: json.dumps(tree, allow_nan=False).encode()}
    files = {name: _fingerprint(data) for name, data in contents.items()}
    return {**contents, MANIFEST: _seal({"format": FORMAT, "env_steps": env_steps, "files": files})}


def _refuse_non_finite(tensors: dict[str, Tensor], prefix: str) -> None:
    for name, tensor in tensors.items():
        if name.startswith("learner") and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise StorageError(f"{prefix}{name} is not finite; go back to the checkpoint before it")


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _seal(fields: dict[str, Any]) -> bytes:
    """The only bytes that are a valid manifest of these fields."""
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**fields, "digest": digest}, sort_keys=True, indent=1) + "\n").encode()


def _read_verified(path: Path) -> dict[str, bytes]:
    """Every file of a checkpoint, read once and checked against the manifest."""
    _refuse_link_to_outside(path)
    raw = _read_file(path / MANIFEST, range(LARGEST_MANIFEST))
    contents = {MANIFEST: raw}
    for name, (fingerprint, size) in _parse_manifest(path, raw).items():
        contents[name] = _read_file(path / name, [size])
        if fingerprint != _fingerprint(contents[name]):
            raise StorageError(f"{path / name} is damaged: its SHA-256 is not the one in the manifest")
    return contents


def _parse_manifest(path: Path, raw: bytes) -> dict[str, tuple[Any, Any]]:
    """Fingerprint and size of each file, once the manifest is known to be whole and to belong here."""
    try:
        manifest = json.loads(raw)
        del manifest["digest"]
        intact = raw == _seal(manifest)
        version, env_steps, files = manifest["format"], manifest["env_steps"], manifest["files"]
        listed = {name: (files[name], files[name]["bytes"]) for name in (TENSORS, TREE)}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StorageError(f"{path / MANIFEST} is not a manifest: {_one_line(error)}") from error
    _check_manifest(path, intact, version, env_steps)
    return listed


def _check_manifest(path: Path, intact: bool, version: Any, env_steps: Any) -> None:
    if version != FORMAT:
        kind = UnknownFormatError if intact else StorageError
        raise kind(f"{path} has format version {version!r:.20}, this Swell reads {FORMAT}; use the Swell that wrote it")
    if not intact:
        raise StorageError(f"{path / MANIFEST} is damaged: it does not match its own digest")
    if _step_of(os.path.basename(os.path.realpath(path))) not in (None, env_steps):
        raise StorageError(f"{path / MANIFEST} belongs to step {env_steps}")


def _read_file(file: Path, sizes: Container[Any]) -> bytes:
    _refuse_link_to_outside(file)
    with storage_errors("read", file):
        if not file.is_file():
            raise StorageError(f"{file} is missing")  # or a pipe, or a directory
        if (size := file.stat().st_size) not in sizes:
            raise StorageError(f"{file} has the wrong size, {size} bytes")
        if size > (free_memory() or size):
            raise OutOfMemoryError(f"{file} has {size:,} bytes, more than there is memory for")
        data = file.read_bytes()
    return data


def _read_if_verified(path: Path) -> dict[str, bytes] | None:
    try:
        return _read_verified(path)
    except StorageError:
        return None


def _refuse_link_to_outside(path: Path) -> None:
    if path.is_symlink() and os.path.dirname(os.path.realpath(path)) != os.path.realpath(path.parent):
        raise StorageError(f"{path} is a link that leads outside")


def _disk_space(directory: Path, contents: dict[str, bytes]) -> str:
    needed, free = sum(map(len, contents.values())) / 1e6, "unknown"
    with contextlib.suppress(OSError):
        existing = next(parent for parent in (directory.absolute(), *directory.absolute().parents) if parent.exists())
        free = f"{shutil.disk_usage(existing).free / 1e6:.1f} MB"
    return f"a checkpoint of {needed:.1f} MB (free: {free})"


def _prepare(directory: Path) -> None:
    """Make the directory, or clear it of what dead processes left half-written."""
    if not directory.exists():
        directory.mkdir(parents=True)
        sync_directory(directory.parent)
    for path in directory.iterdir():
        match = re.fullmatch(r"\.tmp-[0-9]+-([0-9]+)", path.name)
        if match and not path.is_symlink() and not _is_another_process(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _is_another_process(pid: int) -> bool:
    if sys.platform == "win32":
        return pid != os.getpid()  # there is no harmless signal to ask with
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return pid != os.getpid()


def _write_all(directory: Path, contents: dict[str, bytes]) -> None:
    directory.mkdir()
    for name, data in contents.items():  # the manifest is the last
        write_durably(directory / name, data)
    sync_directory(directory)


def _publish(temporary: Path, target: Path) -> None:
    """Rename into place; a good checkpoint of the same step stays loadable as `old-…` until the new one is there."""
    old = target.with_name(f"old-{target.name}")
    if _read_if_verified(target):
        shutil.rmtree(old, ignore_errors=True)
        os.replace(target, old)
    elif os.path.lexists(target):
        set_aside(target)
    os.replace(temporary, target)
    sync_directory(target.parent)
    if old.exists():
        os.replace(old, temporary)  # which the caller deletes


def _quarantine(path: Path, fault: StorageError, report: Report) -> None:
    try:
        aside = set_aside(path)
        report(f"{fault}; moved to {aside.name}, using the checkpoint before it")
    except OSError as error:
        report(f"{fault}; it cannot be moved aside ({error.strerror}), using the checkpoint before it")


def _delete(env_steps: int, path: Path, report: Report) -> None:
    """Rename first: a process that dies while it deletes must not leave half a checkpoint under a good name."""
    trash = path.with_name(f".tmp-{env_steps}-{os.getpid()}")
    try:
        os.replace(path, trash)
        shutil.rmtree(trash)
    except OSError as error:
        report(f"cannot delete the old checkpoint {path}: {error.strerror}")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
