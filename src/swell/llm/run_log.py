"""A run directory for a trainer of TRL's kind: config.json, metrics.jsonl, evaluations.jsonl, summary.json, seals."""

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import TrainerCallback

from swell.display.console import Quiet, warn
from swell.display.sinks import Sink
from swell.errors import DivergedError, StorageError
from swell.learning.schedules import Every
from swell.llm.checkpoints import SEAL_NAME
from swell.llm.trainer import GRPOTrainer
from swell.memory.system import peak_memory_mb
from swell.runs.logs import JsonLines, read_jsonl
from swell.runs.run_directory import write_json_atomic
from swell.runs.sealed import write_sealed

FINAL_SHARE = 0.1
"""Of a run's completions, whose rewards make its final reward."""
METRICS = {
    "reward": "reward",
    "reward_std": "reward_deviation",
    "ess": "ess",
    "ess/ratio_mean": "ess_ratio_mean",
    "ess/capped_share": "ess_capped_share",
    "ess/pull": "ess_pull",
    "stability/raw_reading": "raw_reading",
    "learning_rate": "learning_rate",
    "loss": "loss",
    "grad_norm": "gradient_norm",
    "entropy": "entropy",
    "completions/mean_length": "completion_length",
}
"""Names of TRL and of our trainer -> names in metrics.jsonl."""


@dataclass(frozen=True)
class Place:
    """Where a run is: by the plan of a moving batch, else by TRL's own options."""

    completions: int
    """Sampled and trained on."""
    total: int
    batch: int
    """Completions of the generation at work."""
    update_batch: int
    between_generations: bool
    """All updates of the newest generation are made, so nothing sampled would be lost here."""


def place_of(trainer: GRPOTrainer) -> Place:
    moving = trainer.moving
    if moving is not None:
        return Place(
            round(moving.completions), moving.total_completions, moving.batch, moving.update_batch, moving.window_done
        )
    args, state = cast(Any, trainer.args), trainer.state
    accumulation, slices = args.gradient_accumulation_steps, args.steps_per_generation * args.num_iterations
    update_batch = accumulation * args.per_device_train_batch_size * args.world_size
    return Place(
        completions=round(state.global_step * update_batch / args.num_iterations),
        total=round(state.max_steps * update_batch / args.num_iterations),
        batch=args.generation_batch_size,
        update_batch=update_batch,
        between_generations=state.global_step * accumulation % slices == 0,
    )


class RunLog(TrainerCallback):
    """Makes a run directory of what a trainer does. Added last, so that it hears of every step after all others.

    A row waits until its generation has had all its updates, so that every row is about whole generations.
    """

    def __init__(
        self,
        trainer: GRPOTrainer,
        directory: Path,
        description: Mapping[str, Any],
        *,
        display: Callable[[int], Sink] = lambda total: Quiet(),
        stop: Callable[[], bool] = lambda: False,
        checkpoints: int = 0,
        seal: Mapping[str, Any] | None = None,
    ) -> None:
        """Of a run that resumes, `seal` is that of its checkpoint; what was logged after it is forgotten.

        `description` is the content of config.json, but for the number of completions. `checkpoints` are spread evenly
        over the run, beside those that `save_strategy` asks for. `stop` is asked between generations. `display` is made
        when the number of completions is known.
        """
        self.directory = directory
        self._make_display = display
        self._display: Sink = Quiet()
        self._trainer, self._description = trainer, description
        self._stop, self._checkpoints = stop, checkpoints
        self._due = Every(1)
        self._row_due = False
        self.stopped = False
        """Whether a signal ended the run, to whichever of its processes."""
        earlier = seal or {}
        self.completions = int(earlier.get("completions", 0))
        self.updates = int(earlier.get("updates", 0))
        self.total = int(earlier.get("total", 0))
        self._earlier_seconds = float(earlier.get("wall_seconds", 0.0))
        self._started = time.perf_counter()
        self._writes = trainer.is_world_process_zero()
        if self._writes:
            self._metrics, self._evaluations = (
                JsonLines(directory / f"{name}.jsonl", earlier["logs"][name] if seal else None, warn)
                for name in ("metrics", "evaluations")
            )

    # What Hugging Face's loop calls.

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.total = place_of(self._trainer).total
        self._due = Every(max(1, self.total // max(1, self._checkpoints)))
        self._due.crossed(self.completions)
        if self._writes:
            config = {**self._description["config"], "total_completions": self.total}
            write_sealed(self.directory / "config.json", {**self._description, "config": config})
            self._display = self._make_display(self.total)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        place = place_of(self._trainer)
        self.completions, self.updates, self.total = place.completions, state.global_step, place.total
        if place.between_generations:
            self.stopped = self._asked_to_stop()
            if self.stopped:
                control.should_save = control.should_training_stop = True
            if self._checkpoints and (self._due.crossed(place.completions) or control.should_training_stop):
                control.should_save = True
        self._row_due |= control.should_log
        # A row with every checkpoint: what TRL has gathered for the next one is not saved.
        control.should_log = (self._row_due and place.between_generations) or (
            control.should_save or control.should_training_stop
        )
        self._row_due &= not control.should_log

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs is None or "loss" not in logs:  # of an evaluation, or Hugging Face's farewell
            return
        if not args.fp16:  # there, a scaler skips steps whose gradient is not finite
            _require_finite(logs, state.global_step)
        if self._writes:
            row = self._row(logs)
            self._metrics.write(row)
            self._display.write(row)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        if metrics and metrics.get("eval_reward") is not None:
            self.evaluation(metrics["eval_reward"], len(cast(Any, self._trainer).eval_dataset))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._writes:
            return
        self._metrics.sync()
        self._evaluations.sync()
        seal = {
            "completions": self.completions,
            "updates": self.updates,
            "total": self.total,
            "wall_seconds": self._wall_seconds(),
            "logs": {"metrics": self._metrics.mark, "evaluations": self._evaluations.mark},
        }
        write_json_atomic(Path(args.output_dir) / f"checkpoint-{state.global_step}" / SEAL_NAME, seal)

    # What a command calls.

    def evaluation(self, mean_reward: float, problems: int) -> None:
        """Notes what the policy of now scored on problems that it is not trained on."""
        if self._writes:
            row = {"completions": self.completions, "mean_reward": mean_reward, "problems": problems}
            self._evaluations.write(row)
            self._display.evaluation(row)

    def finish(self, status: str) -> dict[str, Any]:
        """Writes summary.json, and returns it with the directory."""
        seconds = self._wall_seconds()
        evaluations = read_jsonl(self.directory / "evaluations.jsonl")
        known = {
            "final_reward": final_reward(read_jsonl(self.directory / "metrics.jsonl")),
            "evaluation_reward": evaluations[-1]["mean_reward"] if evaluations else None,
            "peak_memory_mb": peak_memory_mb(),
        }
        summary: dict[str, Any] = {
            "status": status,
            "directory": str(self.directory),
            "completions": self.completions,
            "updates": self.updates,
            "wall_seconds": seconds,
            "completions_per_second": self.completions / max(seconds, 1e-9),
            **{name: value for name, value in known.items() if value is not None},
        }
        if self._writes:
            write_sealed(self.directory / "summary.json", summary)
        return summary

    def finish_if_possible(self, status: str) -> None:
        """A summary that cannot be written must not hide what went wrong."""
        with contextlib.suppress(StorageError):
            self.finish(status)

    def close(self) -> None:
        """Lets go of the screen and the files."""
        self._display.close()
        if self._writes:
            self._metrics.close()
            self._evaluations.close()

    # Details.

    def _row(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        trainer, place = self._trainer, place_of(self._trainer)
        row: dict[str, Any] = {"completions": self.completions, "updates": self.updates}
        row |= {ours: logs[theirs] for theirs, ours in METRICS.items() if logs.get(theirs) is not None}
        row |= {"batch": place.batch, "update_batch": place.update_batch}
        if trainer.moving is not None:
            row |= _batch_metrics(trainer, logs)
        row["wall_seconds"] = self._wall_seconds()
        if trainer.moving is not None:  # else updates are TRL's own, and nobody takes their time
            row |= {f"seconds_{phase}": seconds for phase, seconds in trainer.seconds.items() if seconds}
        return row

    def _asked_to_stop(self) -> bool:
        """By a signal to any of the processes: one that stopped alone would leave the others waiting."""
        accelerator = cast(Any, self._trainer).accelerator
        if accelerator.num_processes == 1:
            return self._stop()
        asked = torch.tensor(float(self._stop()), device=accelerator.device)
        return bool(accelerator.reduce(asked, reduction="sum").item())

    def _wall_seconds(self) -> float:
        return self._earlier_seconds + time.perf_counter() - self._started


def _batch_metrics(trainer: GRPOTrainer, logs: Mapping[str, Any]) -> dict[str, Any]:
    """What only a moving batch has."""
    moving, args = trainer.moving, trainer.args
    assert moving is not None
    row: dict[str, Any] = {} if moving.finished else {"next_batch": moving.planned_batch}
    reading = logs.get(f"stability/{args.signal}")
    if args.measure_every:
        row["signal"] = args.signal
    if reading is not None:
        row["reading"] = reading
    given = (args.calm_reading, args.volatile_reading) if args.batch_scaler == "adaptive" else ("auto", "auto")
    calm, volatile = getattr(moving.controller.scaler, "thresholds", given) or ("auto", "auto")
    return row if calm == "auto" else {**row, "calm_reading": calm, "volatile_reading": volatile}


def _require_finite(logs: Mapping[str, Any], step: int) -> None:
    for name in ("loss", "grad_norm"):
        value = logs.get(name)
        if value is not None and not math.isfinite(value):
            raise DivergedError(f"{METRICS[name].replace('_', ' ')} became {value} at update {step}")


def final_reward(rows: list[dict[str, Any]]) -> float | None:
    """The mean training reward over the last tenth of completions, each row weighing as many as it is about."""
    rewarded = [row for row in rows if row.get("reward") is not None]
    if not rewarded:
        return None
    start = (1.0 - FINAL_SHARE) * rewarded[-1]["completions"]
    before = [0, *(row["completions"] for row in rewarded)]
    weights = [max(0.0, row["completions"] - max(start, b)) for row, b in zip(rewarded, before, strict=False)]
    return sum(w * row["reward"] for w, row in zip(weights, rewarded, strict=True)) / sum(weights)
