"""The state of a benchmark's runs, read from their directories alone, and the index that is made from it.

Nothing reads the index: it is for people and scripts, and a lost or damaged one is simply written again.
"""

import json
import os
import socket
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from swell.bench.plan import PlannedRun
from swell.bench.workers.process import ATTEMPT, FINISHED, claim_of
from swell.display.sinks import Row, finite
from swell.errors import ConfigError, StorageError
from swell.runs.run_directory import LOCK_NAME, RunLock, read_json, write_json_atomic

Status = Literal["missing", "waiting", "running", "in use", "interrupted", "stopped", "failed", "done", "diverged"]
"""`waiting` for its source; `running` under this driver; `in use` by another process; `stopped` for good."""
STOPPED = "stopped.json"
"""In a run directory: why a sweep gave the run up."""
INDEX = "index.json"
TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class RunState:
    """What is known of a planned run."""

    run: PlannedRun
    status: Status
    env_steps: int = 0
    wall_seconds: float | None = None
    episode_return: float | None = None
    horizon: float | None = None
    score: float | None = None
    """Mean return of the last evaluation, else of the last 100 training episodes; only of finished runs."""
    reason: str = ""
    """Why it failed, in one line."""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    @property
    def fraction_done(self) -> float:
        if self.is_finished:
            return 1.0
        return min(1.0, self.env_steps / max(1, self.run.config.total_env_steps))

    @property
    def steps_per_second(self) -> float | None:
        """The mean speed since the run began, evaluations included."""
        return self.env_steps / self.wall_seconds if self.wall_seconds else None


def read_state(run: PlannedRun, root: Path) -> RunState:
    """How far a run is, by what its directory holds. A held lock outdoes an old summary, a result outdoes a lock."""
    directory = run.directory(root)
    try:
        path = directory / "summary.json"
        summary = read_json(path) if path.exists() else {}
        row = last_row(directory / "metrics.jsonl")
    except StorageError as error:
        return RunState(run, "failed", reason=str(error))
    status = _status(directory, str(summary.get("status")))
    score = finite(summary, "evaluation_return")
    return RunState(
        run,
        status,
        env_steps=int(finite(row, "env_steps") or 0),
        wall_seconds=finite(row, "wall_seconds"),
        episode_return=finite(row, "episode_return"),
        horizon=finite(row, "horizon"),
        score=(finite(summary, "final_return") if score is None else score) if status in FINISHED else None,
        reason=last_line(run.log(root)) if status == "failed" else "",
    )


def read_states(runs: Iterable[PlannedRun], root: Path) -> list[RunState]:
    """The states of all runs; one that is not there is `waiting` if its source has no result yet."""
    states = {run.name: read_state(run, root) for run in runs}
    for name, state in states.items():
        source = states.get(state.run.source or "")
        if state.status == "missing" and source is not None and not source.is_finished:
            states[name] = RunState(state.run, "waiting")
    return list(states.values())


def mark_as_stopped(directory: Path, reason: str) -> None:
    """A run that is not worth going on with; `swell resume` still could."""
    write_json_atomic(directory / STOPPED, {"reason": reason})


def is_held(directory: Path) -> bool:
    """Whether some process works on the run, found out without getting into its way for more than a moment."""
    return any(_is_locked(place) for place in (claim_of(directory), directory))


def attempts(run: PlannedRun, root: Path) -> int:
    """How often someone began to work on the run."""
    log = run.log(root)
    if not log.exists():
        return 0
    with log.open("rb") as lines:
        return sum(line.startswith(ATTEMPT.encode()) for line in lines)


def last_row(path: Path) -> Row:
    """The last whole row of a JSON lines file, found from its end; empty if there is none."""
    for line in reversed(_tail(path).split(b"\n")):
        try:
            row = json.loads(line)
        except ValueError:  # a torn line, or one that began before the tail
            continue
        if isinstance(row, dict):
            return cast("Row", row)
    return {}


def last_line(path: Path) -> str:
    """The last line of a log that is not empty, without the prefix `swell: `."""
    lines = [line.strip() for line in _tail(path).decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("swell: ") if lines else ""


def write_index(states: Sequence[RunState], root: Path) -> None:
    """Replaces the index in one step. Several drivers may do so at once: each prepares it under a name of its own."""
    entries = [_index_entry(state, root) for state in states]
    prepared = root / f".index-{socket.gethostname()}-{os.getpid()}.json"
    write_json_atomic(prepared, {"runs": entries})
    os.replace(prepared, root / INDEX)


def _status(directory: Path, summarised: str) -> Status:
    if summarised in FINISHED:
        return "done" if summarised == "done" else "diverged"
    if is_held(directory):
        return "in use"
    if (directory / STOPPED).exists():
        return "stopped"
    if summarised == "failed":
        return "failed"
    return "interrupted" if (directory / "config.json").exists() else "missing"


def _is_locked(directory: Path) -> bool:
    path = directory / LOCK_NAME
    if not path.exists():
        return False
    if sys.platform == "win32":
        try:
            with RunLock(directory):
                return False
        except ConfigError:
            return True
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look do not see each other
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(descriptor)
    return False


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read()
    except OSError:
        return b""


def _index_entry(state: RunState, root: Path) -> dict[str, Any]:
    run = state.run
    return {
        "name": run.name,
        "env": run.env,
        "variant": run.variant.label,
        "seed": run.seed,
        "status": state.status,
        "env_steps": state.env_steps,
        "score": state.score,
        "attempts": attempts(run, root),
        "log": str(run.log(root).relative_to(root)),
        **({"reason": state.reason} if state.reason else {}),
    }
