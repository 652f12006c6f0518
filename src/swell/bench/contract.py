"""What the queue of a benchmark asks of those it works with, and what it hands back."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from swell.bench.plan import PlannedRun
from swell.bench.status import RunState
from swell.bench.worker import Ending
from swell.config.run_config import RunConfig


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

    def stop(self) -> None:
        """Asks every run to save and stop; `finished` still tells how each ended."""
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


@dataclass(frozen=True)
class Outcome:
    """How the runs stand at the end of a driver."""

    states: tuple[RunState, ...]
    root: Path

    @property
    def finished(self) -> list[RunState]:
        return [state for state in self.states if state.is_finished]

    @property
    def failed(self) -> list[RunState]:
        return [state for state in self.states if state.status == "failed"]

    @property
    def unfinished(self) -> list[RunState]:
        """Neither finished nor failed: other drivers work on them."""
        return [state for state in self.states if not state.is_finished and state.status != "failed"]

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0

    def report(self) -> str:
        """What came of it, then each failed run with its reason and its log."""
        counts = f"{len(self.finished)} of {len(self.states)} finished"
        diverged = sum(state.status == "diverged" for state in self.states)
        counts += f" ({diverged} diverged)" if diverged else ""
        counts += f", {len(self.failed)} failed" if self.failed else ""
        counts += f", {len(self.unfinished)} in use by others" if self.unfinished else ""
        lines = [counts]
        for state in self.failed:
            lines += [f"  failed: {state.run.name}: {state.reason}", f"    log: {state.run.log(self.root)}"]
        if self.failed:
            lines.append("the same command tries the failed runs again")
        return "\n".join(lines)
