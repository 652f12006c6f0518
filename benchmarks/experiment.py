"""Runs a grid of training runs, several at a time, and turns what they left behind into a table.

An experiment is a list of `Trial`s. `carry_out` starts what is missing, resumes what was interrupted and skips what is
done, so the same command can be given again after any kind of end.
"""

import csv
import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Trial:
    """One run: where it belongs in the tables (`labels`), and the options of `swell train`."""

    labels: dict
    env: str
    options: dict

    @property
    def name(self):
        return "_".join([self.env.replace("/", "-"), *(f"{key}-{value}" for key, value in self.labels.items())])

    def flags(self):
        for name, value in self.options.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                yield f"--{flag}" if value else f"--no-{flag}"
            else:
                values = value if isinstance(value, tuple) else (value,)
                yield from [f"--{flag}", *map(str, values)]

    def command(self, directory):
        return [sys.executable, "-m", "swell", "train", self.env, *self.flags(), "--out", str(directory), "--quiet"]


def carry_out(trials, root, jobs):
    """The run directory of each trial, once all are done; with 0 jobs, of what there is."""
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    directories = [root / trial.name for trial in trials]
    if jobs:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(_run, trials, directories))
    return directories


def _run(trial, directory):
    if _is_finished(directory):
        return
    if (directory / "config.json").exists():
        command = [sys.executable, "-m", "swell", "resume", str(directory), "--quiet"]
    else:
        command = trial.command(directory)
    finished = subprocess.run(command, capture_output=True, text=True)
    word = "done" if finished.returncode == 0 else f"exit code {finished.returncode}: {finished.stderr.strip()[-300:]}"
    print(f"{directory.name}: {word}", flush=True)


def _is_finished(directory):
    summary = directory / "summary.json"
    return summary.exists() and json.loads(summary.read_text())["status"] in ("done", "diverged")


def outcome(trial, directory):
    """One row of the CSV: labels, and what the run came to."""
    summary = json.loads((directory / "summary.json").read_text())
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return {
        "env": trial.env,
        **trial.labels,
        "status": summary["status"],
        "env_steps": summary["env_steps"],
        "gradient_steps": summary["gradient_steps"],
        "final_return": summary.get("final_return", math.nan),
        "mean_return": mean_over_training(rows),
        "evaluation_return": summary.get("evaluation_return", math.nan),
        "wall_seconds": round(summary["wall_seconds"]),
    }


def mean_over_training(rows):
    """The return averaged over env steps: a run that learns sooner has more of it."""
    known = [(row["env_steps"], row["episode_return"]) for row in rows if "episode_return" in row]
    if len(known) < 2:
        return math.nan
    steps, returns = map(np.array, zip(*known, strict=True))
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0]))


def outcomes(trials, directories):
    pairs = zip(trials, directories, strict=True)
    return [outcome(trial, directory) for trial, directory in pairs if _is_finished(directory)]


def write_csv(rows, path):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def select(rows, **labels):
    return [row for row in rows if all(row[name] == value for name, value in labels.items())]


def interval(values, confidence=0.95, resamples=10_000):
    """Mean and its percentile-bootstrap interval over seeds; with a handful of them it is a sketch, and too narrow."""
    values = np.array([value for value in values if not math.isnan(value)], dtype=float)
    if len(values) == 0:
        return math.nan, math.nan, math.nan
    draws = np.random.default_rng(0).choice(values, (resamples, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return values.mean(), low, high


def cell(values, digits=1):
    mean, low, high = interval(values)
    return "–" if math.isnan(mean) else f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
