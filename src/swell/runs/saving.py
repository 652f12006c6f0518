"""Checkpoints of a run as its disk and its envs allow: saved, waited for, and one kept in memory."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swell.config.run_config import RunConfig
from swell.errors import StorageError
from swell.learning.schedules import Every
from swell.runs.checkpoint import Report, Serialised, prune, save_checkpoint, serialise, write_checkpoint
from swell.runs.logs import RunGoneError

CHECKPOINTS_KEPT = 2
FAILED_SAVES_ALLOWED = 3
SECONDS_BETWEEN_TRIES = 1.0
SECONDS_BETWEEN_SPARES = 10.0
SPARES_PER_SECOND = 0.01
"""Seconds that a spare may take of each second of training."""

MakeState = Callable[[], dict[str, Any]]


class Saver:
    """Writes checkpoints where they are due.

    Envs in worker processes can die at any moment, and take with them what a checkpoint would need. For them a spare
    is kept: a checkpoint in memory, some seconds old, which is written once that has happened.
    """

    def __init__(self, config: RunConfig, directory: Path, report: Report) -> None:
        self.due = Every(config.checkpoint_every)
        self._seconds = 60.0 * config.checkpoint_minutes
        self._directory, self._report = directory, report
        self._failures = 0
        self._spare: tuple[int, Serialised] | None = None
        self._saved_at = self._spared_at = time.perf_counter()
        self._seconds_between_spares = SECONDS_BETWEEN_SPARES

    def is_due(self, env_steps: int) -> bool:
        crossed = self.due.crossed(env_steps)
        return crossed or time.perf_counter() - self._saved_at > self._seconds

    def note_saved(self) -> None:
        """Here, or by another process of the run."""
        self._saved_at = time.perf_counter()

    def save(self, env_steps: int, make_state: MakeState, best_step: int | None, at_last: bool) -> None:
        """A failing disk costs a checkpoint, not the run; only several failures in a row end it, or one at last."""

        def write() -> None:
            save_checkpoint(self._directory, env_steps, make_state())

        try:
            self.patiently(write) if at_last else write()
            self._failures = 0
        except RunGoneError:
            raise
        except StorageError as error:
            self._failures += 1
            if at_last or self._failures >= FAILED_SAVES_ALLOWED:
                raise
            self._report(f"checkpoint not written: {error}")
            return
        self._spare = None
        self.note_saved()
        prune(self._directory, self._report, CHECKPOINTS_KEPT, best_step)

    def patiently(self, write: Callable[[], None]) -> None:
        """Where there is no later, a disk that is full for a moment is waited for."""
        for _ in range(FAILED_SAVES_ALLOWED - 1):
            try:
                return write()
            except RunGoneError:
                raise
            except StorageError as error:
                self._report(f"{error}; trying again")
                time.sleep(SECONDS_BETWEEN_TRIES)
        return write()

    def keep_spare(self, env_steps: int, make_state: MakeState) -> None:
        """In memory, every so many seconds, and less often where it takes long."""
        started = time.perf_counter()
        if started - max(self._saved_at, self._spared_at) < self._seconds_between_spares:
            return
        with contextlib.suppress(StorageError):  # a log that cannot be written now: the next one will do
            self._spare = env_steps, serialise(env_steps, make_state())
        self._spared_at = time.perf_counter()
        seconds = self._spared_at - started
        self._seconds_between_spares = max(SECONDS_BETWEEN_SPARES, seconds / SPARES_PER_SECOND)

    def write_spare(self) -> int | None:
        """Env steps of the spare that is on disk now; None where none was kept or it could not be written."""
        if self._spare is None or not self._directory.parent.is_dir():  # a run that was deleted does not come back
            return None
        env_steps, contents = self._spare
        try:
            write_checkpoint(self._directory, env_steps, contents)
        except StorageError as error:
            self._report(f"checkpoint not written: {error}")
            return None
        return env_steps

    def last_good(self) -> str:
        names = sorted(path.name for path in self._directory.glob("step-*"))
        return f"the last good checkpoint is {names[-1]}" if names else "no checkpoint had been written yet"
