"""Draws the return, horizon and behavioral divergence of runs over env steps.

    python benchmarks/plot_run.py docs/results/breakout.png runs/breakout
    python benchmarks/plot_run.py picture.png adaptive=runs/a-s1,runs/a-s2 fixed=runs/f-s1,runs/f-s2

Each further argument is a run, or a label and the runs of several seeds: then the line is their mean, and the band
goes from the lowest to the highest.
"""

import json
import sys
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PANELS = [
    ("episode_return", "return\n(last 100 episodes)"),
    ("horizon", "horizon"),
    ("reading", "behavioral\ndivergence"),
]


def curve(directory, name):
    """(env steps, values) of one metric; the last rollout is left out, because it is cut to the run's total."""
    rows = [json.loads(line) for line in (Path(directory) / "metrics.jsonl").read_text().splitlines()][:-1]
    found = [(row["env_steps"], row[name]) for row in rows if row.get(name) is not None]
    return np.array(found, dtype=float).reshape(-1, 2).T


def draw(axis, label, directories, name, color):
    curves = [curve(directory, name) for directory in directories]
    curves = [(steps, values) for steps, values in curves if len(steps)]
    if not curves:
        return
    grid = np.linspace(max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves), 400)
    values = np.stack([np.interp(grid, steps, values) for steps, values in curves])
    axis.plot(grid / 1e6, values.mean(axis=0), color=color, label=label, linewidth=1.6)
    if len(curves) > 1:
        axis.fill_between(grid / 1e6, values.min(axis=0), values.max(axis=0), color=color, alpha=0.2, linewidth=0)


def main(picture, *groups):
    labelled = [group.split("=", 1) if "=" in group else [Path(group).name, group] for group in groups]
    figure, axes = plt.subplots(3, 1, figsize=(8, 7.5), sharex=True, height_ratios=[2, 1, 1], layout="constrained")
    for position, (label, directories) in enumerate(labelled):
        for axis, (name, _) in zip(axes, PANELS, strict=True):
            draw(axis, label, directories.split(","), name, f"C{position}")
    for axis, (_, title) in zip(axes, PANELS, strict=True):
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    axes[-1].set_xlabel("env steps (millions)")
    axes[-1].set_ylim(0, 1)
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    main(*sys.argv[1:])
