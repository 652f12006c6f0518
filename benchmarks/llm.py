"""Language-model studies on small tasks, on one core and without downloads.

    python -m benchmarks.llm objectives --results docs/results     clip ranges, CISPO and ESS at three learning rates
    python -m benchmarks.llm batches --results docs/results        fixed, ramped and adaptive batches, every signal
    python -m benchmarks.llm confounds --results docs/results      what a reading shows of a policy that does not change
    ... --task add-2-digits                                        the same on the second task

`python -m benchmarks.llm_figures` makes tables and pictures of the rows. A row is written as soon as a run ends, and a
run that has its row is not made again: stop and start as you like. Time is the processor time of one thread, without
evaluation, so that a busy machine hardly changes it.
"""

import argparse
import csv
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TRANSFORMERS_VERBOSITY="error")

import numpy as np
import torch
import transformers

from swell.llm import GRPOConfig, GRPOTrainer
from swell.llm.readings import corrected
from swell.llm.tasks import ADDITION, SORTING, accuracy, character_tokenizer, exact_match, small_model, warm_start

TASKS = {task.name: task for task in (SORTING, ADDITION)}
WARM_START = {SORTING.name: {"steps": 30}, ADDITION.name: {"steps": 2000, "until": 0.2}}
"""Supervised training until a sampled answer is right about one time in five."""
COMMON = {
    "num_generations": 8,
    "temperature": 1.0,
    "lr_scheduler_type": "constant",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": [],
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
}
LEARNING_RATES = (1e-4, 3e-4, 1e-3)

OBJECTIVES = {
    "clip 0.1": {"loss_type": "dapo", "epsilon": 0.1},
    "clip 0.2": {"loss_type": "dapo", "epsilon": 0.2},
    "clip 0.4": {"loss_type": "dapo", "epsilon": 0.4},
    "cispo 1": {"loss_type": "cispo", "epsilon_high": 1.0},
    "cispo 5": {"loss_type": "cispo", "epsilon_high": 5.0},
    "ess": {"loss_type": "ess"},
    "ess without pull": {"loss_type": "ess", "ess_pull": False},
    "ess without cap": {"loss_type": "ess", "ess_cap": False},
}
ON_POLICY = ("clip 0.2", "cispo 5", "ess")
"""On fresh data every ratio is 1 and clips do nothing, so the others would repeat these."""
CARRIED_OVER = ("clip 0.2", "cispo 5", "ess", "ess without pull", "ess without cap")
"""To the second task, with 16 updates of each generation."""

MOVING = {"max_generation_batch_size": 256, "min_generation_batch_size": 32}
ADAPTIVE = {"batch_scaler": "adaptive", **MOVING}
BATCHES = {
    "fixed 32": {"batch_scaler": "fixed", "measure_every": 0},
    "fixed 64": {"batch_scaler": "fixed", "gradient_accumulation_steps": 2, "measure_every": 0},
    "fixed 128": {"batch_scaler": "fixed", "gradient_accumulation_steps": 4, "measure_every": 0},
    "fixed 256": {"batch_scaler": "fixed", "gradient_accumulation_steps": 8, "measure_every": 0},
    "ramp 32-256": {"batch_scaler": "ramp", "measure_every": 0, **MOVING},
    "adaptive KL": {**ADAPTIVE, "settling_readings": 0},
    "adaptive ESS": {**ADAPTIVE, "settling_readings": 0, "signal": "effective_sample_size"},
    "adaptive divergence": {**ADAPTIVE, "settling_readings": 0, "signal": "behavioral_divergence"},
    "adaptive KL, uncorrected": {**ADAPTIVE, "settling_readings": 0, "reading_correction": "none"},
    "adaptive KL, settled": ADAPTIVE,
}
TOTAL = 12_800


class Bench:
    """Makes runs from the same warm start per seed, and knows which have their row already."""

    def __init__(self, task, path, columns):
        self.task, self.path, self.columns = task, path, columns
        self.tokenizer = character_tokenizer()
        self.warm = {}
        self.done = set()
        if path.exists():
            with open(path, newline="") as file:
                self.done = {self.key(row) for row in csv.DictReader(file)}

    def key(self, row):
        return tuple(str(row[name]) for name in self.columns[: self.columns.index("seed") + 1])

    def add(self, rows):
        new = not self.path.exists()
        with open(self.path, "a", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            if new:
                writer.writeheader()
            writer.writerows(rows)

    def model(self, seed):
        if seed not in self.warm:
            model = small_model(seed)
            warm_start(model, self.tokenizer, self.task, seed=seed, **WARM_START[self.task.name])
            self.warm[seed] = {name: value.clone() for name, value in model.state_dict().items()}
        model = small_model(seed)
        model.load_state_dict(self.warm[seed])
        return model

    def accuracy(self, model, seed, problems=1000):
        return accuracy(model, self.tokenizer, self.task, problems=problems, seed=90_000 + seed)

    def trainer(self, seed, settings, callbacks=()):
        model = self.model(seed)
        with tempfile.TemporaryDirectory() as directory:
            trainer = GRPOTrainer(
                model=model,
                reward_funcs=exact_match,
                args=GRPOConfig(
                    directory, seed=seed, max_completion_length=self.task.answer_length + 1, **{**COMMON, **settings}
                ),
                train_dataset=self.task.dataset(2048, seed=seed),
                processing_class=self.tokenizer,
                callbacks=list(callbacks),
            )
        trainer.remove_callback(transformers.PrinterCallback)
        return trainer


def objectives(bench, seeds):
    """Clip ranges, CISPO and ESS, on fresh data and with 16 updates of each generation."""
    settings = {
        "on-policy": {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 4, "max_steps": 100},
        "16 updates": {
            "per_device_train_batch_size": 32,
            "steps_per_generation": 4,
            "num_iterations": 4,
            "max_steps": 480,
        },
    }
    for seed in range(1, seeds + 1):
        for staleness, shared in settings.items():
            for rate in LEARNING_RATES:
                for label, own in OBJECTIVES.items():
                    row = {
                        "task": bench.task.name,
                        "staleness": staleness,
                        "learning_rate": rate,
                        "objective": label,
                        "seed": seed,
                    }
                    if bench.key(row) in bench.done or not is_asked(bench.task, staleness, label):
                        continue
                    trainer = bench.trainer(seed, {**shared, **own, "learning_rate": rate})
                    row["start"] = bench.accuracy(trainer.model, seed)
                    began = time.process_time()
                    trusts = watch_ess(trainer)
                    trainer.train()
                    row["seconds"] = round(time.process_time() - began, 2)
                    row["ess_mean"] = round(sum(trusts) / len(trusts), 4) if trusts else ""
                    row["accuracy"] = bench.accuracy(trainer.model, seed)
                    bench.add([row])
                    print(row, flush=True)


def is_asked(task, staleness, label):
    if task is not SORTING:
        return staleness == "16 updates" and label in CARRIED_OVER
    return staleness == "16 updates" or label in ON_POLICY


def watch_ess(trainer):
    """Every e of the run to come; nothing where the objective has none."""
    seen = []
    if trainer.uses_ess:

        class Watch(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, **_):
                seen.append(trainer.last_ess)

        trainer.add_callback(Watch())
    return seen


class Milestones(transformers.TrainerCallback):
    """Accuracy at every eighth of the run, and the processor time of training until then."""

    def __init__(self, bench, seed):
        self.bench, self.seed = bench, seed
        self.rows, self.next, self.evaluating = [], 0, 0.0
        self.trainer = None

    def on_step_end(self, args, state, control, **_):
        moving = self.trainer.moving
        if moving.completions < self.next * TOTAL / 8 and not moving.finished:
            return
        self.look(state.global_step)

    def look(self, updates):
        moving = self.trainer.moving
        now = time.process_time()
        seconds = now - self.began - self.evaluating
        value = self.bench.accuracy(self.trainer.model, self.seed, 1000)
        self.evaluating += time.process_time() - now
        row = {"completions": round(moving.completions), "updates": updates, "batch": moving.batch}
        self.rows.append({**row, "seconds": round(seconds, 2), "accuracy": value})
        while self.next * TOTAL / 8 <= moving.completions:
            self.next += 1


def batches(bench, seeds):
    """Fixed, ramped and adaptive generations of as many completions in all."""
    shared = {"per_device_train_batch_size": 32, "learning_rate": 3e-4, "loss_type": "dapo", "total_completions": TOTAL}
    for seed in range(1, seeds + 1):
        for label, own in BATCHES.items():
            row = {"task": bench.task.name, "variant": label, "seed": seed}
            if bench.key(row) in bench.done:
                continue
            milestones = Milestones(bench, seed)
            trainer = milestones.trainer = bench.trainer(seed, {**shared, **own}, [milestones])
            milestones.began = time.process_time()
            milestones.look(0)
            trainer.train()
            bench.add([{**row, **milestone} for milestone in milestones.rows])
            print(row, milestones.rows[-1], flush=True)


SIGNALS = ("kl_divergence", "effective_sample_size", "behavioral_divergence")


def confounds(bench, seeds):
    """Readings of a policy whose weights are put back after every update: what moves them is batch and rate alone."""
    for seed in range(1, seeds + 1):
        for rate in (1e-4, 3e-4, 6e-4):
            for batch in (32, 64, 128, 256):
                row = {"task": bench.task.name, "learning_rate": rate, "batch": batch, "seed": seed}
                if bench.key(row) in bench.done:
                    continue
                found = frozen_readings(bench, seed, rate, batch)
                bench.add([{**row, **reading} for reading in found])
                print(row, found, flush=True)


def frozen_readings(bench, seed, rate, batch, updates=60, skip=20):
    """Means over the updates after the first `skip`, as measured and brought to a batch of 32 and a rate of 3e-4."""
    settings = {
        "batch_scaler": "adaptive",
        "learning_rate": rate,
        "per_device_train_batch_size": 16,
        "probe_completions": 64,
        "gradient_accumulation_steps": batch // 16,
        "max_generation_batch_size": batch,
        "total_completions": updates * batch,
    }
    trainer = bench.trainer(seed, settings)
    stability = trainer.stability
    stability._reference_batch = 32
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    raw = {signal: [] for signal in SIGNALS}
    brought = {signal: [] for signal in SIGNALS}
    finishers = []

    def begin(model):
        finishers[:] = [stability.watch(model, signal) for signal in SIGNALS]

    def finish(learning_rate_share):
        factor = stability.correction(rate / 3e-4)  # as if a schedule had led there from 3e-4
        for signal, reading in zip(SIGNALS, finishers, strict=True):
            raw[signal].append(reading())
            brought[signal].append(corrected(raw[signal][-1], signal, factor))
        trainer.model.load_state_dict(weights)

    stability.begin, stability.finish = begin, finish
    trainer.train()
    return [
        {
            "signal": signal,
            "raw": np.mean(raw[signal][skip:]),
            "corrected": np.mean(brought[signal][skip:]),
            "noise_scale": stability.noise.scale,
            "readings": len(raw[signal]) - skip,
        }
        for signal in SIGNALS
    ]


STUDIES = {
    "objectives": (
        objectives,
        5,
        ["task", "staleness", "learning_rate", "objective", "seed", "start", "accuracy", "ess_mean", "seconds"],
    ),
    "batches": (
        batches,
        8,
        ["task", "variant", "seed", "completions", "updates", "batch", "seconds", "accuracy"],
    ),
    "confounds": (
        confounds,
        3,
        ["task", "learning_rate", "batch", "seed", "signal", "raw", "corrected", "noise_scale", "readings"],
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--task", choices=TASKS, default=SORTING.name)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--results", type=Path, default=Path("runs/llm-studies"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    study, seeds, columns = STUDIES[given.study]
    given.results.mkdir(parents=True, exist_ok=True)
    suffix = "" if given.task == SORTING.name else f"-{given.task}"
    bench = Bench(TASKS[given.task], given.results / f"llm-{given.study}{suffix}.csv", columns)
    study(bench, given.seeds or seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
