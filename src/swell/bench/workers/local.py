"""Runs of a benchmark on this machine: a process for each, so many at a time."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from swell.bench.plan import PlannedRun
from swell.bench.status import last_line
from swell.bench.workers.check import faults_in_a_process
from swell.bench.workers.process import Ending
from swell.config.run_config import RunConfig
from swell.errors import ConfigError
from swell.runs.run_directory import storage_errors


@dataclass
class _Worker:
    run: PlannedRun
    process: subprocess.Popen[bytes]


class LocalExecutor:
    """Carries out at most `jobs` runs at a time, each in a process whose output is appended to the run's log."""

    def __init__(self, root: Path, jobs: int) -> None:
        if jobs < 1:
            raise ConfigError(f"jobs must be at least 1, got {jobs}")
        self._root, self._jobs = root.resolve(), jobs
        self._workers: list[_Worker] = []

    def prepare(self, runs: Sequence[PlannedRun]) -> None:
        """Refuses runs that cannot be built here, such as pqn on continuous actions; of equal ones one is tried."""
        distinct = {replace(run.config, seed=0, label=None): run.config for run in reversed(runs)}
        if faults := faults_in_a_process([*reversed(distinct.values())]):
            raise ConfigError(*faults)

    @property
    def capacity(self) -> int:
        return self._jobs - len(self._workers)

    def submit(self, run: PlannedRun, config: RunConfig) -> None:
        """Starts a worker. Its stdin stays open as long as this process lives, which is how the worker knows."""
        request = {"directory": str(run.directory(self._root)), "config": config.to_dict(), "watch_stdin": True}
        log = run.log(self._root)
        with storage_errors("write", log):
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "swell.bench.workers.process"],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C in the terminal is for the driver, which passes it on once
                )
        self._workers.append(_Worker(run, process))
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it died already: its ending tells
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()

    def finished(self) -> list[tuple[PlannedRun, Ending]]:
        """The runs whose workers have ended since the last call."""
        ended = [worker for worker in self._workers if worker.process.poll() is not None]
        self._workers = [worker for worker in self._workers if worker not in ended]
        return [(worker.run, self._ending(worker)) for worker in ended]

    def stop(self, only: PlannedRun | None = None) -> None:
        """Asks every worker, or that of one run, to save and stop; `finished` then tells how each ended."""
        for worker in self._workers:
            if only is not None and worker.run.name != only.name:
                continue
            with suppress(ProcessLookupError):
                worker.process.terminate()

    def close(self) -> None:
        """Lets go of the workers that are left, which save and stop as if this process had ended."""
        for worker in self._workers:
            _close_stdin(worker)

    def _ending(self, worker: _Worker) -> Ending:
        _close_stdin(worker)
        code = worker.process.returncode
        if code >= 0:
            return Ending(code, last_line(worker.run.log(self._root)))
        try:
            return Ending(code, f"killed by {signal.Signals(-code).name}")
        except ValueError:
            return Ending(code, f"killed by signal {-code}")


def _close_stdin(worker: _Worker) -> None:
    if worker.process.stdin is not None:
        with suppress(OSError):
            worker.process.stdin.close()


def default_jobs() -> int:
    """As many runs at a time as this process may use cores."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
