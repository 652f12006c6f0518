"""The trials of a sweep: drawn by Optuna's TPE, halved successively, kept in its journal, trained as runs of a queue.

A run of the plan is a place for a trial. Its options are drawn when it first starts, under a lock, and stand in the
journal from then on, so that any process that comes upon the run continues the same trial. What came of it is in the
run directory, and whoever sees it tells Optuna. A rung is a number of env steps; a run is judged by its first row at or
beyond it, because rollouts of a moving batch end where they end.
"""

import logging
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from swell.bench.plan import PlannedRun
from swell.bench.status import RunState
from swell.config.run_config import RunConfig, changed
from swell.config.seeds import derive_seed
from swell.display.sinks import finite
from swell.errors import ConfigError, InUseError
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import RunLock, storage_errors
from swell.sweep.space import Dimension

JOURNAL = "journal.log"
STUDY = "swell"
RUN = "run"
"""Attribute of a trial: the name of its run."""
REDRAWS = 100
"""How many draws whose options contradict each other are put aside before a sweep gives up."""


def import_optuna() -> Any:
    try:
        optuna = import_module("optuna")
        import_module("optuna.storages.journal")
    except ImportError as error:
        raise ConfigError('Optuna is not installed: pip install "swell-rl[sweep]"') from error
    optuna.logging.set_verbosity(logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


class Trials:
    """Draws, judges and tells; the overseer of a queue."""

    def __init__(self, root: Path, space: Sequence[Dimension], rungs: Sequence[int], halving: int, seed: int) -> None:
        self._optuna = import_optuna()
        self._root, self._space, self._rungs, self._seed = root.resolve(), space, sorted(rungs), seed
        with storage_errors("make directory", root):
            self._root.mkdir(parents=True, exist_ok=True)
        storages = self._optuna.storages
        backend = storages.journal.JournalFileBackend(str(self._root / JOURNAL))
        first = self._rungs[0] if self._rungs else 1
        self._pruner = self._optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=halving)
        with self._alone():
            self.study = self._optuna.create_study(
                study_name=STUDY,
                storage=storages.JournalStorage(backend),
                direction="maximize",
                pruner=self._pruner,
                load_if_exists=True,
            )
            self._refuse_another_sweep({"space": [str(part) for part in space], "rungs": self._rungs})

    def config_of(self, run: PlannedRun) -> RunConfig:
        """The config of the run's trial, which is drawn now unless it was before; contradictory draws are put aside."""
        with self._alone():
            known = self._trial_of(run.name)
            if known is not None:
                return changed(run.config, **self.options_of(known))
            for _ in range(REDRAWS):
                number = len(self.study.get_trials(deepcopy=False))
                seed = derive_seed(self._seed, "sweep", number)  # no two processes draw the same
                self.study.sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)
                trial = self.study.ask()
                try:
                    config = changed(run.config, **self.options_of(trial))
                except ConfigError as error:
                    trial.set_user_attr("refused", list(error.faults))
                    self._tell(trial.number, None, "PRUNED")
                    continue
                trial.set_user_attr(RUN, run.name)
                return config
        raise ConfigError(f"{REDRAWS} draws in a row contradict themselves; narrow --space")

    def is_hopeless(self, state: RunState) -> str | None:
        """Whether the run fell behind at a rung that it has reached and that has not judged it yet."""
        trial = self._trial_of(state.run.name)
        if trial is None or trial.state.is_finished():
            return None
        judged = trial.last_step or 0
        due = [rung for rung in self._rungs if judged < rung <= state.env_steps]
        for rung in due:
            row = self._row_at(state.run, rung)
            value = finite(row, "episode_return")
            env_steps = finite(row, "env_steps")
            if value is None or env_steps is None:
                continue  # no episode has ended yet: nothing to judge by
            live = self._optuna.trial.Trial(self.study, trial._trial_id)  # one that this process may not have drawn
            live.report(value, int(env_steps))
            if live.should_prune():
                return f"return {value:g} at {int(env_steps):,} env steps, which others have surpassed"
        return None

    def ended(self, state: RunState) -> None:
        trial = self._trial_of(state.run.name)
        if trial is None or trial.state.is_finished() or state.status == "failed":
            return  # a failed run is tried again by the next start
        if state.status == "done" and state.score is not None:
            self._tell(trial.number, state.score, "COMPLETE")
        else:
            self._tell(trial.number, None, "PRUNED")

    def best(self) -> Any:
        """The finished trial with the highest score; None while there is none."""
        complete = self.study.get_trials(deepcopy=False, states=[self._optuna.trial.TrialState.COMPLETE])
        return max(complete, key=lambda trial: trial.value, default=None)

    def counts(self) -> dict[str, int]:
        """How many trials came to what."""
        trials = self.study.get_trials(deepcopy=False)
        refused = sum("refused" in trial.user_attrs for trial in trials)
        return {"drawn": len(trials) - refused, "refused": refused}

    def _trial_of(self, name: str) -> Any:
        trials = self.study.get_trials(deepcopy=False)
        return next((trial for trial in reversed(trials) if trial.user_attrs.get(RUN) == name), None)

    def options_of(self, trial: Any) -> dict[str, Any]:
        """What is drawn for a trial, or was: one of the past answers each question as before."""
        return {part.name: part.drawn(trial) for part in self._space}

    def _row_at(self, run: PlannedRun, rung: int) -> dict[str, Any]:
        rows = read_jsonl(run.directory(self._root) / "metrics.jsonl")
        return next((row for row in rows if (finite(row, "env_steps") or 0) >= rung), {})

    def _tell(self, number: int, value: float | None, state: str) -> None:
        self.study.tell(number, value, self._optuna.trial.TrialState[state], skip_if_finished=True)

    def _refuse_another_sweep(self, asked: dict[str, Any]) -> None:
        known = self.study.user_attrs
        changes = {name: value for name, value in asked.items() if name in known and known[name] != value}
        faults = [f"{name} was {known[name]} and is {value}" for name, value in changes.items()]
        if faults:
            raise ConfigError(*faults, f"{self._root} holds another sweep: choose another --out")
        for name, value in asked.items():
            if name not in known:
                self.study.set_user_attr(name, value)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """While no other process of this sweep draws."""
        folder = self._root / ".drawing"
        with storage_errors("make directory", folder):
            folder.mkdir(exist_ok=True)
        while True:
            lock = RunLock(folder)
            try:
                lock.__enter__()
                break
            except InUseError:
                time.sleep(0.05)
        try:
            yield
        finally:
            lock.__exit__(None, None, None)
