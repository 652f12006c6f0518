"""A run in progress: drives `train`, logs, evaluates and saves, so that it survives whatever ends it."""

import contextlib
import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from swell import ranks
from swell.config.run_config import RunConfig
from swell.config.seeds import derive_seed
from swell.display.console import make_console, warn
from swell.display.evaluating import show_evaluation
from swell.display.panel import PanelView, RunHeader
from swell.display.sinks import RunSoFar, Sink, TensorBoardSink, tensorboard_available
from swell.display.trackers import open_trackers
from swell.errors import ProcessesDifferError, StorageError
from swell.learning.schedules import Every
from swell.loop import train
from swell.memory.plan import describe
from swell.memory.system import give_back_freed_memory, peak_memory_mb
from swell.runs.build import SMALL_NETWORKS, BuiltRun
from swell.runs.checkpoint import prune, save_checkpoint
from swell.runs.endings import told_endings
from swell.runs.evaluation import episodes_to_play, greedy_episodes, score_of
from swell.runs.interrupt import InterruptedRunError, StopRequest
from swell.runs.logs import JsonLines, Mark, NoLines, RunGoneError
from swell.runs.process_state import gathered
from swell.runs.run_directory import as_json, tracked_identity, typed
from swell.runs.sealed import write_sealed
from swell.runs.state_check import require_alike, require_numbers
from swell.runs.watchdog import Watchdog
from swell.types import Iteration

CHECKPOINTS_KEPT = 2
FAILED_SAVES_ALLOWED = 3
SECONDS_BETWEEN_TRIES = 1.0
PROMISES = {
    "exact": "exact: a resumed run ends bit-identical to an uninterrupted one",
    "replay": "exact by replay: unfinished episodes are played again on resume and checked against the saved frames",
    "continuing": "continuing: weights, optimizer, scaler and counters are exact, unfinished episodes start anew",
}


def resume_promise(parts: BuiltRun) -> str:
    """What a restart of this run can promise; a GPU's arithmetic is not repeatable enough for more than continuing."""
    return PROMISES[parts.collector.envs.resume_tier if parts.device.type == "cpu" else "continuing"]


def process_notices(parts: BuiltRun) -> list[str]:
    """What one should know of a run of several processes."""
    count, local_count = ranks.place().count, ranks.place().local_count
    notices: list[str] = []
    if count > 1 and getattr(parts.collector.envs, "shares_generator", False):
        notices.append(
            "these envs draw from one generator in each process: a valid run, but not the one that one process would do"
        )
    if local_count > 1 and parts.device.type == "cpu" and parts.network_name in SMALL_NETWORKS:
        notices.append(
            f"{local_count} processes of one machine are slower than one with a network as small as "
            f"{parts.network_name}: adding up gradients takes longer than making them (docs/processes.md)"
        )
    return notices


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


@dataclass
class RunHistory:
    """What a run remembers between iterations beside the parts themselves."""

    wall_seconds: float = 0.0
    train_seconds: float = 0.0
    resume_count: int = 0
    best_return: float = float("-inf")
    best_step: int | None = None
    evaluation: dict[str, Any] | None = None
    micro_batch_size: int | None = None
    """What there was room for when memory last ran out; None while it has not."""


class _StoppedEvaluationError(Exception):
    """A signal came in the middle of an evaluation."""


def restored_history(state: dict[str, Any]) -> RunHistory:
    """From a checkpoint; a TypeError where a part of it is of another kind."""
    history = RunHistory(**state)
    require_alike(asdict(RunHistory(best_step=0, micro_batch_size=1)), state)
    if history.evaluation is not None:
        require_numbers(history.evaluation, "env_steps", "episodes", "mean_return", "std_return")
    return history


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
        self._checkpoint_due = Every(config.checkpoint_every)
        self._console = make_console(
            quiet or not ranks.is_first(), PanelView(self._header(), RunSoFar(config.total_env_steps))
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
        self._failed_saves = 0
        self._has_told_of_few_episodes = False
        self._started = time.perf_counter()
        self._saved_at = self._started

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
            self._checkpoint_due.load_state_dict(state["checkpoint_due"])
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
                told_endings(self._summarise_if_possible, self._last_good, less_memory),
                Watchdog(self.config.env_timeout, partial(self._summarise_if_possible, "failed")),
                StopRequest() as stop,
            ):
                self._iterate(stop)
                if self.config.most_evaluation_episodes and not self._is_evaluated():
                    self._save(at_last=True) if self._evaluate(stop) else self._patiently(self._evaluations.sync)
                return self._summarise("done")
        finally:
            for sink in self._sinks:
                sink.close()
            self.parts.collector.envs.close()

    def _iterate(self, stop: StopRequest) -> None:
        parts, config = self.parts, self.config
        if self._evaluation_is_due() and self._finish_iteration(stop):  # stopped in the middle of it
            return
        if self._target_reached():  # killed between the checkpoint that says so and the summary
            return
        iterations = train(parts.collector, parts.learner, parts.measurement, parts.scaler, config.total_env_steps)
        before = time.perf_counter()
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
        finished = env_steps >= self.config.total_env_steps or self._target_reached()
        # What any process was told, or any clock says, all do.
        signal_number, is_due = ranks.largest(stop.signal_number or 0, int(self._save_due(env_steps)))
        if is_due or improved or finished or signal_number:
            self._save(at_last=bool(finished or signal_number))
        if signal_number:
            raise self._stopped(signal_number, "stopped")
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
                improved = self._evaluate_here(stop)
            except _StoppedEvaluationError:
                signal_number = stop.signal_number
        evaluation = self._history.evaluation
        self._history.evaluation, improved, signal_number = ranks.first_says((evaluation, improved, signal_number))
        if signal_number:
            self._save(at_last=True)
            raise self._stopped(signal_number, "stopped in the evaluation")
        return improved

    def _evaluate_here(self, stop: StopRequest) -> bool:
        give_back_freed_memory()  # their envs would come on top of what the update left behind
        env_steps = self.parts.collector.env_steps
        # A seed of its own for each evaluation, apart from training's.
        seed = derive_seed(self.config.seed, "evaluation", env_steps)
        policy, config = self.parts.learner.greedy_actions, self.config
        episodes = episodes_to_play(config, self.parts.collector.episodes, env_steps)
        self._tell_of_few_episodes(episodes)

        def told(finished: int, steps: int) -> None:
            show_played(finished, episodes, steps)
            if stop.signal_number:
                raise _StoppedEvaluationError

        with show_evaluation(self._console) as show_played:
            played = greedy_episodes(policy, config, self.parts.device, episodes, seed, told)
        row = score_of(played, env_steps)
        self._history.evaluation = row
        self._evaluations.write(row)
        for sink in self._sinks:
            sink.evaluation(row)
        return self._evaluation_due is not None and self._note_score(row["mean_return"])

    def _tell_of_few_episodes(self, episodes: int) -> None:
        """Once: an evaluation is shorter than most are, and nobody has asked for that."""
        most = self.config.most_evaluation_episodes
        if episodes < most and not self._has_told_of_few_episodes:
            self._has_told_of_few_episodes = True
            self._console.message(
                f"evaluating {episodes} episodes, as {most} may take more steps than the training; "
                "--evaluation-episodes asks for more"
            )

    def _note_score(self, score: float) -> bool:
        if score <= self._history.best_return:
            return False
        self._history.best_return, self._history.best_step = score, self.parts.collector.env_steps
        return True

    def _is_evaluated(self) -> bool:
        evaluation = self._history.evaluation
        return evaluation is not None and evaluation["env_steps"] == self.parts.collector.env_steps

    def _target_reached(self) -> bool:
        target = self.config.target_return
        evaluation = self._history.evaluation
        return target is not None and evaluation is not None and evaluation["mean_return"] >= target

    def _save_due(self, env_steps: int) -> bool:
        crossed = self._checkpoint_due.crossed(env_steps)
        return crossed or time.perf_counter() - self._saved_at > 60.0 * self.config.checkpoint_minutes

    def _save(self, at_last: bool = False) -> None:
        """A failing disk costs a checkpoint, not the run; only several failures in a row end it, or one at last."""
        parts, history = self.parts, self._history
        if not self._evaluation_due and parts.collector.episodes.returns:
            self._note_score(float(np.mean(parts.collector.episodes.returns)))
        checkpoints = self.directory / "checkpoints"
        require_same_weights(parts.learner.network, parts.collector.env_steps)
        state = gathered(parts.state_dict())
        if not ranks.is_first():
            self._saved_at = time.perf_counter()
            return

        def write() -> None:
            save_checkpoint(checkpoints, parts.collector.env_steps, self._state(state))

        try:
            self._patiently(write) if at_last else write()
            self._failed_saves = 0
        except RunGoneError:
            raise
        except StorageError as error:
            self._failed_saves += 1
            if at_last or self._failed_saves >= FAILED_SAVES_ALLOWED:
                raise
            self._console.message(f"checkpoint not written: {error}")
            return
        self._saved_at = time.perf_counter()
        prune(checkpoints, self._console.message, CHECKPOINTS_KEPT, history.best_step)

    def _patiently(self, write: Callable[[], None]) -> None:
        """Where there is no later, a disk that is full for a moment is waited for."""
        for _ in range(FAILED_SAVES_ALLOWED - 1):
            try:
                return write()
            except RunGoneError:
                raise
            except StorageError as error:
                self._console.message(f"{error}; trying again")
                time.sleep(SECONDS_BETWEEN_TRIES)
        return write()

    def _state(self, parts: dict[str, Any]) -> dict[str, Any]:
        self._metrics.sync()
        self._evaluations.sync()
        return {
            **parts,
            "run": {**asdict(self._history), "wall_seconds": self._wall_seconds()},
            "logs": {"metrics": self._metrics.mark, "evaluations": self._evaluations.mark},
            "description": self._description,
            "checkpoint_due": self._checkpoint_due.state_dict(),
            "evaluation_due": self._evaluation_due.state_dict() if self._evaluation_due else None,
        }

    def _summarise(self, status: str) -> dict[str, Any]:
        collector, evaluation = self.parts.collector, self._history.evaluation
        summary: dict[str, Any] = {
            "status": status,
            "directory": str(self.directory),
            "env_steps": collector.env_steps,
            "gradient_steps": self.parts.learner.gradient_steps,
            "path": self.parts.path,
            "micro_batch_size": self.parts.learner.micro_batch_size,
            "episodes": collector.episodes.finished,
            "abandoned_episodes": collector.episodes.abandoned,
            "steps_per_second": collector.env_steps / max(self._history.train_seconds, 1e-9),
            "wall_seconds": self._wall_seconds(),
            **self._memory_use(),
        }
        if collector.episodes.returns:
            summary["final_return"] = float(np.mean(collector.episodes.returns))
        if evaluation is not None:
            summary["evaluation_return"] = evaluation["mean_return"]
            summary["evaluation_std"] = evaluation["std_return"]
            summary["evaluation_episodes"] = evaluation["episodes"]
            summary["evaluation_cut_episodes"] = evaluation.get("cut_episodes", 0)  # earlier versions waited for all
            summary["evaluation_env_steps"] = evaluation["env_steps"]
        if ranks.is_first():
            write_sealed(self.directory / "summary.json", {k: v for k, v in summary.items() if k != "directory"})
        return summary

    def _memory_use(self) -> dict[str, float]:
        """The most that the process held and what was predicted, as far as they are known."""
        known = {"peak_memory_mb": peak_memory_mb(), "predicted_memory_mb": self.parts.memory_plan.predicted_mb}
        return {name: size for name, size in known.items() if size is not None}

    def _summarise_if_possible(self, status: str) -> None:
        """A summary that cannot be written must not hide what went wrong."""
        with contextlib.suppress(StorageError):
            self._summarise(status)

    def _last_good(self) -> str:
        names = sorted(path.name for path in (self.directory / "checkpoints").glob("step-*"))
        return f"the last good checkpoint is {names[-1]}" if names else "no checkpoint had been written yet"

    def _header(self) -> RunHeader:
        config, parts = self.config, self.parts
        words = {
            "adaptive": f"adaptive {config.min_horizon}..{parts.longest_horizon} ({config.interpolation})",
            "fixed": f"fixed {config.horizon}",
            "ramp": f"ramp from {config.ramp_from}" if config.ramp_from else f"ramp {config.ramp_horizons}",
            "noise-scale": f"noise scale {config.min_horizon}..{parts.longest_horizon}",
        }
        return RunHeader(
            env_id=config.env,
            algorithm=config.algorithm,
            network=f"{parts.network_name}, {parts.path}",
            num_parameters=sum(parameter.numel() for parameter in parts.learner.network.parameters()),
            scaler=f"{words.get(config.scaler, config.scaler)}, minibatches by {config.minibatch_rule}",
            adapts=config.adapts_horizon,
            min_horizon=config.min_horizon if config.adapts_horizon else 1,
            max_horizon=parts.longest_horizon,
            num_envs=config.num_envs,
            run_directory=str(self.directory),
            resume=resume_promise(parts).split(":")[0],
        )
