"""What studies share: `swell bench` makes their runs; what these leave becomes rows, tables and pictures here."""

import argparse
import csv
import json
import math
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

METRICS = {"final_return": "return, last 100 episodes", "mean_return": "return, mean over training"}


@dataclass(frozen=True)
class Side:
    """A variant of `swell bench`, and the columns that say in the CSV which one it is."""

    label: str
    variant: str
    columns: dict


@dataclass(frozen=True)
class Bench:
    """One `swell bench`: envs, sides, env steps, and the options that all sides share."""

    envs: tuple
    sides: tuple
    steps: int
    options: dict

    def command(self, seeds, out):
        variants = [f"{side.label}={side.variant}" for side in self.sides]
        shared = ["--set", *(f"{name}={value}" for name, value in self.options.items())] if self.options else []
        counts = ["--steps", str(self.steps), "--seeds", str(seeds)]
        return ["swell", "bench", *self.envs, "--variants", *variants, *shared, *counts, "--out", str(out)]


def make_parser(description, seeds, out):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--seeds", type=int, default=seeds, help="runs of each kind, with seeds 1, 2, …")
    parser.add_argument("--out", type=Path, default=Path(out), help="where runs go")
    parser.add_argument("--results", type=Path, help="where CSV and picture go; by default beside the runs")
    parser.add_argument("--report-only", action="store_true", help="start nothing; report what is there")
    return parser


def carry_out(benches, description, seeds, name):
    """Makes the runs of a study, as the command line asks; returns their rows, the runs, and where a picture belongs.

    Options that are not the study's own go to `swell bench`.
    """
    parser = make_parser(description, seeds, f"runs/{name}")
    parser.epilog = "Other options go to `swell bench`, for example --jobs 2, --dry-run or --on ray."
    given, others = parser.parse_known_args()
    if given.report_only and others:
        parser.error(f"--report-only starts no `swell bench` that could be told {' '.join(others)}")
    for bench in [] if given.report_only else benches:
        start_bench([*bench.command(given.seeds, given.out), *others])
    columns = {side.label: side.columns for bench in benches for side in bench.sides}
    runs = [run for run in finished_runs(given.out) if run.label in columns]
    rows = [outcome(run, columns[run.label]) for run in runs]
    results = prepare_results(given)
    write_csv(rows, results / f"{name}.csv")
    return rows, runs, results / f"{name}.png"


@dataclass(frozen=True)
class FinishedRun:
    """A run directory that has a result."""

    directory: Path
    config: dict
    summary: dict
    metrics: list

    @property
    def label(self):
        return self.config["label"]


def finished_runs(root):
    """Every run at or below `root` that is done or diverged, by env, label and seed."""
    if not root.is_dir():
        sys.exit(f"no run in {root}")
    runs = []
    for path in root.rglob("summary.json"):
        summary = json.loads(path.read_text())
        if summary["status"] in ("done", "diverged"):
            config = json.loads((path.parent / "config.json").read_text())["config"]
            runs.append(FinishedRun(path.parent, config, summary, read_metrics(path.parent)))
    return sorted(runs, key=lambda run: (run.config["env"], run.label or "", run.config["seed"]))


def read_metrics(directory):
    return [json.loads(line) for line in (Path(directory) / "metrics.jsonl").read_text().splitlines()]


def curve(metrics, name):
    """Env steps and values of one logged number, where it was logged."""
    known = [(row["env_steps"], row[name]) for row in metrics if row.get(name) is not None]
    return np.array(known, dtype=float).reshape(-1, 2).T


def mean_over_training(metrics):
    """The return averaged over env steps: a run that learns sooner has more of it."""
    steps, returns = curve(metrics, "episode_return")
    return float(np.trapezoid(returns, steps) / (steps[-1] - steps[0])) if len(steps) > 1 else math.nan


def outcome(run, columns):
    """One row of the CSV."""
    return {
        "env": run.config["env"],
        **columns,
        "seed": run.config["seed"],
        "status": run.summary["status"],
        "env_steps": run.summary["env_steps"],
        "gradient_steps": run.summary["gradient_steps"],
        "final_return": run.summary.get("final_return", math.nan),
        "mean_return": mean_over_training(run.metrics),
        "evaluation_return": run.summary.get("evaluation_return", math.nan),
        "wall_seconds": round(run.summary["wall_seconds"]),
    }


def start_bench(command):
    """Waits for its end; a study ends where one of its benches fails, and `swell` has said why."""
    print(shlex.join(command), flush=True)
    code = subprocess.run([sys.executable, "-m", *command]).returncode
    if code:
        sys.exit(code)


def prepare_results(given):
    results = given.results or given.out
    results.mkdir(parents=True, exist_ok=True)
    return results


def write_csv(rows, path):
    if not rows:
        sys.exit(f"nothing is finished yet, so there is no {path}")
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path):
    """The rows of a CSV, with numbers where there are numbers."""
    with open(path, newline="") as file:
        return [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(file)]


def kept(path, make_rows, *arguments):
    """The rows in `path`; where it does not exist yet, `make_rows(*arguments)` makes what it keeps."""
    if not path.exists():
        rows = make_rows(*arguments)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_csv(rows, path)
    return read_csv(path)


def values(rows, name, **columns):
    """One quantity of the rows that have these values in these columns."""
    return [row[name] for row in rows if all(row[column] == value for column, value in columns.items())]


def interval(numbers, confidence=0.95, resamples=10_000):
    """Mean and its percentile-bootstrap interval over seeds; with a handful of them it is a sketch, and too narrow."""
    known = np.array([number for number in numbers if not math.isnan(number)], dtype=float)
    if len(known) == 0:
        return math.nan, math.nan, math.nan
    draws = np.random.default_rng(0).choice(known, (resamples, len(known))).mean(axis=1)
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return known.mean(), low, high


def cell(numbers, digits=1):
    mean, low, high = interval(numbers)
    return "–" if math.isnan(mean) else f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(header, lines):
    """Markdown, with an empty line before it."""
    rows = [f"| {' | '.join(map(str, line))} |".replace("|  |", "| |") for line in (header, *lines)]
    return "\n".join(["", rows[0], "|" + "---|" * len(header), *rows[1:]])


def draw(panels, path, bottom=None):
    """Means with their intervals. A panel has a title, axis labels, ticks, and the numbers at each tick, by series.

    Panels with series of their own get a legend of their own.
    """
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False, layout="constrained")
    for axis, (title, xlabel, ylabel, ticks, series) in zip(axes[0], panels, strict=True):
        for shift, (name, points) in enumerate(series.items()):
            mean, low, high = np.array([interval(point) for point in points]).T
            known = ~np.isnan(mean)
            places = np.arange(len(ticks))[known] + 0.04 * (shift - len(series) / 2)
            error = (mean - low)[known], (high - mean)[known]
            axis.errorbar(places, mean[known], error, marker="o", capsize=3, linewidth=1.2, label=name)
        axis.set_xticks(range(len(ticks)), ticks)
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
        axis.set_ylim(bottom=bottom)
        if axis is axes[0, 0] or series.keys() != panels[0][-1].keys():
            axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
