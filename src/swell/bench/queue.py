"""The queue of a benchmark: runs what is missing, continues what was interrupted, skips what is finished.

The truth is in the run directories. The driver keeps nothing that a second start could not find there, so it may be
killed at any moment, and several drivers may share one directory: the claim that a worker holds on its run (see
`workers/process.py`) decides who trains it, and a driver that comes second leaves the run alone and takes another.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from swell.bench.plan import PlannedRun, refuse_mismatched_runs
from swell.bench.status import INDEX, RunState, mark_as_stopped, read_state, read_states, write_index
from swell.bench.workers.process import IN_USE, Ending
from swell.config.run_config import RunConfig
from swell.errors import ConfigError
from swell.runs.interrupt import InterruptedRunError, StopRequest
from swell.runs.run_directory import storage_errors

RETRIES = 3
TICK_SECONDS = 0.1
REFRESH_SECONDS = 1.0
"""Between two looks at the progress of runs, and at what others hold."""
PATIENCE_SECONDS = 20.0
"""How long an idle driver waits for runs that others hold: the workers of a killed driver need a moment to save."""


class Executor(Protocol):
    """Where runs are carried out."""

    def prepare(self, runs: Sequence[PlannedRun]) -> None:
        """Refuses, before anything runs, what it could not carry out; ConfigError says why."""
        ...

    @property
    def capacity(self) -> int:
        """How many more runs can be taken now."""
        ...

    def submit(self, run: PlannedRun, config: RunConfig) -> None:
        """Starts to carry out a run and returns at once."""
        ...

    def finished(self) -> list[tuple[PlannedRun, Ending]]:
        """The runs that have ended since the last call."""
        ...

    def stop(self, only: PlannedRun | None = None) -> None:
        """Asks every run, or this one, to save and stop; `finished` still tells how each ended."""
        ...

    def close(self) -> None:
        """Nothing more will be asked of it."""
        ...


class Board(Protocol):
    """Where a person sees how the benchmark goes."""

    def show(self, states: Sequence[RunState]) -> None:
        """The states of all runs, in the order of the plan; called several times a second."""
        ...

    def message(self, text: str) -> None:
        """A notice of one line."""
        ...

    def close(self) -> None:
        """The benchmark is over. Calling it twice does no harm."""
        ...


class Overseer(Protocol):
    """Who decides what the runs are and which are worth going on with, as `swell sweep` does."""

    def config_of(self, run: PlannedRun) -> RunConfig:
        """The whole config of a run that is about to begin or to go on."""
        ...

    def is_hopeless(self, state: RunState) -> str | None:
        """Why a run at work is to be stopped for good; None lets it go on. Asked about once a second."""
        ...

    def ended(self, state: RunState) -> None:
        """A run is done, diverged, stopped or failed; may be told again."""
        ...


class NoOverseer:
    """Runs are as planned, and all of them are trained to their end."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def config_of(self, run: PlannedRun) -> RunConfig:
        return run.resolved_config(self._root)

    def is_hopeless(self, state: RunState) -> str | None:
        return None

    def ended(self, state: RunState) -> None: ...


@dataclass(frozen=True)
class BenchmarkResult:
    """How the runs stand at the end of a driver."""

    states: tuple[RunState, ...]
    root: Path

    @property
    def finished(self) -> list[RunState]:
        return [state for state in self.states if state.is_finished]

    @property
    def stopped(self) -> list[RunState]:
        return [state for state in self.states if state.status == "stopped"]

    @property
    def failed(self) -> list[RunState]:
        return [state for state in self.states if state.status == "failed"]

    def report(self) -> str:
        """What came of it, then each failed run with its reason and its log."""
        lines = [f"{len(self.finished)} of {len(self.states)} finished"]
        diverged = sum(state.status == "diverged" for state in self.states)
        in_use = len(self.states) - len(self.finished) - len(self.failed) - len(self.stopped)
        lines[0] += f" ({diverged} diverged)" if diverged else ""
        lines[0] += f", {len(self.stopped)} stopped early" if self.stopped else ""
        lines[0] += f", {len(self.failed)} failed" if self.failed else ""
        lines[0] += f", {in_use} in use by others" if in_use else ""
        for state in self.failed:
            lines += [f"  failed: {state.run.name}: {state.reason}", f"    log: {state.run.log(self.root)}"]
        if self.failed:
            lines.append("the same command tries the failed runs again")
        return "\n".join(lines)


def refuse(runs: Sequence[PlannedRun], root: Path, executor: Executor) -> None:
    """ConfigError if the plan cannot be carried out in `root`: it holds other runs, or what is left cannot be run."""
    refuse_mismatched_runs(runs, root.resolve())
    left = [s.run for s in read_states(runs, root.resolve()) if not s.is_finished and s.status != "stopped"]
    if left:
        executor.prepare(left)


def run_benchmark(
    runs: Sequence[PlannedRun],
    root: Path,
    executor: Executor,
    board: Board,
    retries: int = RETRIES,
    patience: float = PATIENCE_SECONDS,
    overseer: Overseer | None = None,
) -> BenchmarkResult:
    """Carries out what is left of the plan in `root` and says how it ended.

    A run whose worker dies is continued up to `retries` times; one that fails by itself is not tried again. After
    Ctrl-C or SIGTERM all runs save and stop, and InterruptedRunError says how to go on.
    """
    root = root.resolve()
    try:
        refuse(runs, root, executor)
        with storage_errors("make directory", root):
            root.mkdir(parents=True, exist_ok=True)
        queue = _Queue(runs, root, executor, board, retries, overseer or NoOverseer(root))
        with StopRequest() as stop:
            states = queue.work(stop, patience)
    finally:
        executor.close()
        board.close()
    result = BenchmarkResult(tuple(states), root)
    if stop.signal_number is not None:
        finished = f"{len(result.finished)} of {len(runs)} runs are finished"
        message = f"stopped: {finished}, what was running is saved; the same command goes on"
        raise InterruptedRunError(message, stop.signal_number)
    return result


class _Queue:
    def __init__(
        self,
        runs: Sequence[PlannedRun],
        root: Path,
        executor: Executor,
        board: Board,
        retries: int,
        overseer: Overseer,
    ) -> None:
        self._root, self._executor, self._board, self._retries = root, executor, board, retries
        self._overseer = overseer
        # What failed under an earlier driver counts as failed only if it does so again.
        self._states = {
            state.run.name: replace(state, status="interrupted", reason="") if state.status == "failed" else state
            for state in read_states(runs, root)
        }
        self._deaths: Counter[str] = Counter()
        self._given_up: set[str] = set()
        self._stopping: set[str] = set()
        for state in self._states.values():
            self._tell_the_overseer(state)
        self._refreshed_at = 0.0
        self._changed = True
        self._write_index()
        self._began = os.stat(root / INDEX).st_mtime  # by the clock of the shared disk

    def work(self, stop: StopRequest, patience: float) -> list[RunState]:
        """Until nothing is left to do here, or until told to stop; the states of all runs then."""
        idle_since: float | None = None
        while stop.signal_number is None:
            self._step()
            states = self._states.values()
            if any(state.status == "running" or self._is_startable(state) for state in states):
                idle_since = None
            else:
                idle_since = idle_since or time.monotonic()
                held = {state.run.name for state in states if state.status == "in use"}
                awaited = {state.run.source for state in states if state.status == "waiting"}
                if not held or (not held & awaited and time.monotonic() - idle_since > patience):
                    return list(states)
            time.sleep(TICK_SECONDS)
        self._shut_down()
        return list(self._states.values())

    def _step(self) -> None:
        for run, ending in self._executor.finished():
            self._record_ending(run, ending)
        if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._refresh()
        self._update_controls()
        self._start_some()
        self._board.show(list(self._states.values()))
        self._write_index()

    def _record_ending(self, run: PlannedRun, ending: Ending) -> None:
        state = read_state(run, self._root)
        if state.is_finished or ending.code == IN_USE:
            self._set(state if state.is_finished else replace(state, status="in use"))
        elif run.name in self._stopping:
            self._set(replace(state, status="stopped"))
        elif not ending.died:
            # Code 0 without a result: something else than the run ended the process well.
            self._give_up(state, ending.message or f"ended with code {ending.code}")
        elif self._deaths[run.name] < self._retries:
            self._deaths[run.name] += 1
            self._board.message(f"{run.name}: {ending.message}; going on from its checkpoint")
            self._set(replace(state, status="interrupted" if state.env_steps else "missing"))
        else:
            self._give_up(state, f"died {self._deaths[run.name] + 1} times, at last: {ending.message}")

    def _refresh(self) -> None:
        """Reads from disk how far the running ones are and whether others have let go of theirs."""
        self._refreshed_at = time.monotonic()
        for name, state in list(self._states.items()):
            if state.status == "running":
                now = replace(read_state(state.run, self._root), status="running", score=None, reason="")
                self._states[name] = now
                reason = None if name in self._stopping else self._overseer.is_hopeless(now)
                if reason is not None:
                    self._stop_for_good(now, reason)
            elif state.status == "in use":
                self._set(read_state(state.run, self._root))

    def _stop_for_good(self, state: RunState, reason: str) -> None:
        """Notes it in the run directory first: a driver that dies now must not let the run go on later."""
        self._stopping.add(state.run.name)
        mark_as_stopped(state.run.directory(self._root), reason)
        self._executor.stop(state.run)

    def _update_controls(self) -> None:
        """A control waits while its source has no result, and fails with it."""
        for state in list(self._states.values()):
            if state.status in ("missing", "waiting") and state.run.source is not None:
                source = self._states.get(state.run.source)
                if source is None or source.is_finished:
                    self._set(replace(state, status="missing"))
                elif source.run.name in self._given_up:
                    self._give_up(state, f"it follows {source.run.name}, which failed")
                else:
                    self._set(replace(state, status="waiting"))

    def _start_some(self) -> None:
        for state in list(self._states.values()):
            if self._executor.capacity <= 0:
                return
            if self._is_startable(state):
                self._start(state.run)

    def _start(self, run: PlannedRun) -> None:
        state = read_state(run, self._root)  # another driver may have taken or finished it since the last look
        if state.is_finished or state.status in ("in use", "stopped"):
            self._set(state)
        elif state.status == "failed" and self._has_failed_elsewhere(run):
            self._give_up(state, state.reason)
        else:
            try:
                config = self._overseer.config_of(run)
            except ConfigError as error:
                self._give_up(state, "; ".join(error.faults))
                return
            except Exception as error:  # what a source left behind may be anything; the other runs go on
                self._give_up(state, f"cannot follow {run.source}: {type(error).__name__}: {error}")
                return
            self._executor.submit(run, config)
            self._set(replace(state, status="running", reason=""))

    def _has_failed_elsewhere(self, run: PlannedRun) -> bool:
        """Whether another driver saw it fail since this one began, so that not every driver tries it anew."""
        summary = run.directory(self._root) / "summary.json"
        return summary.exists() and summary.stat().st_mtime > self._began

    def _shut_down(self) -> None:
        running = [state for state in self._states.values() if state.status == "running"]
        if running:
            self._board.message(f"stopping: {len(running)} runs save first; a second Ctrl-C does not wait for them")
        self._executor.stop()
        left = {state.run.name for state in running}
        while left:
            for run, _ in self._executor.finished():
                left.discard(run.name)
                self._set(read_state(run, self._root))
            self._board.show(list(self._states.values()))
            time.sleep(TICK_SECONDS)
        self._write_index()

    def _is_startable(self, state: RunState) -> bool:
        return state.status in ("missing", "interrupted", "failed") and state.run.name not in self._given_up

    def _give_up(self, state: RunState, reason: str) -> None:
        self._given_up.add(state.run.name)
        self._set(replace(state, status="failed", reason=reason))

    def _set(self, state: RunState) -> None:
        is_news = self._states[state.run.name].status != state.status
        self._changed |= is_news
        self._states[state.run.name] = state
        if is_news:
            self._tell_the_overseer(state)

    def _tell_the_overseer(self, state: RunState) -> None:
        if state.is_finished or state.status in ("stopped", "failed"):
            self._overseer.ended(state)

    def _write_index(self) -> None:
        if self._changed:
            write_index(list(self._states.values()), self._root)
            self._changed = False
