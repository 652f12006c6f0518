"""A run in progress: drives `train`, logs, evaluates and saves, so that it survives whatever ends it."""

import contextlib
import hashlib
import time
from collections.abc import Generator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from swell import ranks
from swell.config.run_config import RunConfig
from swell.display.console import make_console, warn
from swell.display.panel import PanelView
from swell.display.sinks import RunSoFar, Sink, TensorBoardSink, tensorboard_available
from swell.display.trackers import open_trackers
from swell.errors import EnvironmentFailedError, ProcessesDifferError, StorageError
from swell.learning.schedules import Every
from swell.loop import train
from swell.memory.plan import describe
from swell.runs.build import BuiltRun
from swell.runs.endings import told_endings
from swell.runs.evaluation import Evaluator, StoppedEvaluationError
from swell.runs.history import RunHistory, restored_history, summary_of
from swell.runs.interrupt import InterruptedRunError, StopRequest
from swell.runs.introduction import header_of, process_notices
from swell.runs.logs import JsonLines, Mark, NoLines
from swell.runs.process_state import gathered
from swell.runs.run_directory import as_json, tracked_identity, typed
from swell.runs.saving import Saver
from swell.runs.sealed import write_sealed
from swell.runs.state_check import require_alike
from swell.runs.watchdog import Watchdog
from swell.types import Iteration


def require_same_weights(network: nn.Module, env_steps: int) -> None:
    """Compares a digest over all processes: different weights would make each learn something else, unnoticed."""
    if ranks.is_alone():
        return
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    digests = ranks.everyones(digest.hexdigest())
    if others := [str(rank) for rank, found in enumerate(digests) if found != digests[0]]:
        raise ProcessesDifferError(
            f"at {env_steps:,} env steps the weights of process {', '.join(others)} are not those of process 0; "
            "nothing was saved: are all machines of one kind, with the same packages?"
        )


class Run:
    """A run in progress: its parts, its directory and its logs.

    Where several processes share it, all of them do the same and the first one writes, shows and evaluates.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        parts: BuiltRun,
        quiet: bool,
        description: dict[str, Any],
        marks: dict[str, Mark] | None = None,
    ) -> None:
        """`description` is what config.json says; `marks` are those of the logs at the checkpoint it goes on from."""
        self.config = config
        self.directory = directory
        self.parts = parts
        self._description = as_json(description)
        self._history = RunHistory()
        self._evaluation_due = Every(config.evaluate_every) if config.evaluate_every else None
        self._console = make_console(
            quiet or not ranks.is_first(),
            PanelView(header_of(config, parts, directory), RunSoFar(config.total_env_steps)),
        )
        self._sinks: list[Sink] = [self._console]
        self._metrics, self._evaluations = (
            JsonLines(directory / f"{name}.jsonl", (marks or {}).get(name), warn) if ranks.is_first() else NoLines()
            for name in ("metrics", "evaluations")
        )
        if (plan := describe(parts.memory_plan, config)) is not None:
            self._console.message(plan)
        for notice in process_notices(parts):
            self._console.message(notice)
        self._saver = Saver(config, directory / "checkpoints", self._console.message)
        self._evaluator = Evaluator(config, parts, self._console)
        self._may_lose_envs = getattr(parts.collector.envs, "may_die", False) and ranks.is_alone()
        self._started = time.perf_counter()

    def restore(self, state: dict[str, Any] | None, notices: list[str]) -> None:
        """Puts everything where the checkpoint says."""
        if state is None:
            notices.append("no checkpoint yet: the run starts anew")
        else:
            require_alike(self.parts.state_dict(), state)
            self._history = restored_history(state["run"])
            self._history.resume_count += 1
            if self._history.micro_batch_size is not None:
                self.parts.learner.micro_batch_size = self._history.micro_batch_size
            self._saver.due.load_state_dict(state["checkpoint_due"])
            if self._evaluation_due and state["evaluation_due"]:
                self._evaluation_due.load_state_dict(state["evaluation_due"])
            if not self.parts.load_state_dict(state, self._history.resume_count):
                notices.append("the envs could not be restored: unfinished episodes were dropped and are not counted")
        for notice in notices:
            self._console.message(notice)

    def drive(self) -> dict[str, Any]:
        """Trains to the end, or until something stops it; either way the summary is written."""
        if tensorboard_available() and ranks.is_first():
            purge_step = self.parts.collector.env_steps + 1  # what an interrupted run logged past its checkpoint
            self._sinks.append(TensorBoardSink(self.directory / "tensorboard", warn, purge_step))
        if self.config.track and ranks.is_first():
            identity, config = partial(tracked_identity, self.directory), self.config.to_dict()
            self._sinks += open_trackers(self.config.track, self.directory, identity, config, self._console.message)
        less_memory = "max_horizon, num_envs or micro_batch_size"
        try:
            with (
                told_endings(self._summarise_if_possible, self._saver.last_good, less_memory),
                Watchdog(self.config.env_timeout, partial(self._summarise_if_possible, "failed")),
                StopRequest() as stop,
            ):
                self._iterate(stop)
                if self.config.most_evaluation_episodes and not self._history.is_evaluated(
                    self.parts.collector.env_steps
                ):
                    self._save(at_last=True) if self._evaluate(stop) else self._saver.patiently(self._evaluations.sync)
                return self._summarise("done")
        finally:
            for sink in self._sinks:
                sink.close()
            self.parts.collector.envs.close()

    def _iterate(self, stop: StopRequest) -> None:
        parts, config = self.parts, self.config
        if self._evaluation_is_due() and self._finish_iteration(stop):  # stopped in the middle of it
            return
        if self._history.has_reached(
            self.config.target_return
        ):  # killed between the checkpoint that says so and the summary
            return
        iterations = train(parts.collector, parts.learner, parts.measurement, parts.scaler, config.total_env_steps)
        before = time.perf_counter()
        with self._saved_where_envs_fail():
            for iteration in iterations:
                seconds = time.perf_counter() - before
                self._history.train_seconds += seconds
                self._log(iteration, seconds)
                if self._finish_iteration(stop):
                    return
                before = time.perf_counter()

    def _finish_iteration(self, stop: StopRequest) -> bool:
        """Evaluates and saves what is due; True if the run is at its end."""
        env_steps = self.parts.collector.env_steps
        improved = self._evaluation_is_due() and self._evaluate(stop)
        if self._evaluation_due:
            self._evaluation_due.crossed(env_steps)
        finished = env_steps >= self.config.total_env_steps or self._history.has_reached(self.config.target_return)
        # What any process was told, or any clock says, all do.
        signal_number, is_due = ranks.largest(stop.signal_number or 0, int(self._saver.is_due(env_steps)))
        if is_due or improved or finished or signal_number:
            self._save(at_last=bool(finished or signal_number))
        if signal_number:
            raise self._stopped(signal_number, "stopped")
        self._keep_spare()
        return finished

    def _stopped(self, signal_number: int, how: str) -> InterruptedRunError:
        env_steps = self.parts.collector.env_steps
        return InterruptedRunError(
            f"{how} at {env_steps:,} env steps; go on with {typed('swell resume', self.directory)}", signal_number
        )

    def _log(self, iteration: Iteration, seconds: float) -> None:
        self._note_smaller_micro_batches()
        env_steps = self.parts.collector.env_steps
        next_plan = self.parts.scaler.plan(min(1.0, env_steps / self.config.total_env_steps))
        row: dict[str, Any] = {
            "env_steps": iteration.env_steps,
            "iteration": iteration.number,
            "horizon": iteration.horizon,
            "next_horizon": next_plan.horizon,
            **iteration.metrics,
            "signal": self.parts.measurement.signal.name,
            **({} if iteration.reading is None else {"reading": iteration.reading}),
            **self.parts.collector.episodes.summary(),
            "steps_per_second": iteration.metrics["batch_size"] / seconds,
            "wall_seconds": self._wall_seconds(),
            **self._phase_seconds(),
        }
        self._metrics.write(row)
        for sink in self._sinks:
            sink.write(row)

    def _note_smaller_micro_batches(self) -> None:
        """Says so once for each time that memory ran out in an update."""
        size = self.parts.learner.micro_batch_size
        if size < (self._history.micro_batch_size or self.parts.memory_plan.micro_batch_size):
            self._console.message(f"memory ran out: micro-batches have {size} samples from now on")
            self._history.micro_batch_size = size

    def _phase_seconds(self) -> dict[str, float]:
        spent = {**self.parts.collector.seconds, "measure": self.parts.measurement.seconds}
        spent["update"] = self._history.train_seconds - sum(spent.values())
        return {f"seconds_{phase}": spent[phase] for phase in ("act", "env", "update", "measure")}

    def _wall_seconds(self) -> float:
        return self._history.wall_seconds + time.perf_counter() - self._started

    def _evaluation_is_due(self) -> bool:
        return self._evaluation_due is not None and self._evaluation_due.is_due(self.parts.collector.env_steps)

    def _evaluate(self, stop: StopRequest) -> bool:
        """Plays greedy episodes; True if they are the best of a run that picks its best by evaluations.

        A signal ends them. What is saved then has them still due, so a resumed run plays them from the first.
        """
        improved, signal_number = False, 0
        if ranks.is_first():
            try:
                improved = self._take_score(self._evaluator.score(stop))
            except StoppedEvaluationError:
                signal_number = stop.signal_number
        evaluation = self._history.evaluation
        self._history.evaluation, improved, signal_number = ranks.first_says((evaluation, improved, signal_number))
        if signal_number:
            self._save(at_last=True)
            raise self._stopped(signal_number, "stopped in the evaluation")
        return improved

    def _take_score(self, row: dict[str, Any]) -> bool:
        """Whether it is the best of a run that picks its best by evaluations."""
        self._history.evaluation = row
        self._evaluations.write(row)
        for sink in self._sinks:
            sink.evaluation(row)
        return self._evaluation_due is not None and self._history.note_score(row["mean_return"], row["env_steps"])

    def _save(self, at_last: bool = False) -> None:
        parts, history = self.parts, self._history
        if not self._evaluation_due and parts.collector.episodes.returns:
            history.note_score(float(np.mean(parts.collector.episodes.returns)), parts.collector.env_steps)
        require_same_weights(parts.learner.network, parts.collector.env_steps)
        state = gathered(parts.state_dict())
        if ranks.is_first():
            self._saver.save(parts.collector.env_steps, lambda: self._state(state), history.best_step, at_last)
        else:
            self._saver.note_saved()

    def _keep_spare(self) -> None:
        if self._may_lose_envs:
            self._saver.keep_spare(self.parts.collector.env_steps, lambda: self._state(self.parts.state_dict()))

    @contextlib.contextmanager
    def _saved_where_envs_fail(self) -> Generator[None]:
        """Envs that failed were in the middle of a rollout: what can be saved is from before it."""
        try:
            yield
        except EnvironmentFailedError as error:
            saved = self._saver.write_spare()
            kept = self._saver.last_good() if saved is None else f"saved at {saved:,} env steps"
            again = typed("swell resume", self.directory)
            raise EnvironmentFailedError(f"{error}; {kept}; go on with {again}") from error

    def _state(self, parts: dict[str, Any]) -> dict[str, Any]:
        self._metrics.sync()
        self._evaluations.sync()
        return {
            **parts,
            "run": {**asdict(self._history), "wall_seconds": self._wall_seconds()},
            "logs": {"metrics": self._metrics.mark, "evaluations": self._evaluations.mark},
            "description": self._description,
            "checkpoint_due": self._saver.due.state_dict(),
            "evaluation_due": self._evaluation_due.state_dict() if self._evaluation_due else None,
        }

    def _summarise(self, status: str) -> dict[str, Any]:
        summary = summary_of(status, self.parts, self._history, self._wall_seconds())
        if ranks.is_first():
            write_sealed(self.directory / "summary.json", summary)
        return {**summary, "directory": str(self.directory)}

    def _summarise_if_possible(self, status: str) -> None:
        """A summary that cannot be written must not hide what went wrong."""
        with contextlib.suppress(StorageError):
            self._summarise(status)
