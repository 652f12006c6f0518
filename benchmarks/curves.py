"""What finished runs have to show for a results page: a curve as CSV, a table of groups, a picture.

    python -m benchmarks.curves csv breakout.csv runs/breakout
    python -m benchmarks.curves table table.csv adaptive=runs/a-s1,runs/a-s2 fixed=runs/f-s1,runs/f-s2
    python -m benchmarks.curves plot picture.png adaptive=runs/a-s1,runs/a-s2 fixed=runs/f-s1,runs/f-s2

`csv` takes one run and writes one row per reading. `table` writes one row a run and prints one row a group. `plot`
draws return, horizon and divergence: a line is the mean of a group, its band goes from the lowest seed to the highest.
"""

import argparse
from pathlib import Path

import numpy as np
from benchmarks.study import curve, finished_runs, read_metrics, table, write_csv

CURVE = ("env_steps", "iteration", "horizon", "reading", "episode_return", "episodes", "gradient_steps", "loss")
FACTS = ("env_steps", "gradient_steps", "final_return", "evaluation_return")
PANELS = {
    "episode_return": "return\n(last 100 episodes)",
    "horizon": "horizon",
    "reading": "behavioral\ndivergence",
}


def write_curve(path, groups):
    [[directory]] = groups.values()
    rows = [{name: row.get(name) for name in CURVE} for row in read_metrics(directory) if "reading" in row]
    write_csv(rows, path)


def write_table(path, groups):
    found = {label: [facts(label, directory) for directory in directories] for label, directories in groups.items()}
    write_csv([row for rows in found.values() for row in rows], path)
    header = [
        "",
        "final training return: mean (seeds)",
        "greedy return: mean (seeds)",
        "gradient steps",
        "longest horizon",
    ]
    lines = []
    for label, rows in found.items():
        returns = [seeds(rows, name) for name in ("final_return", "evaluation_return")]
        steps = f"{np.mean([row['gradient_steps'] for row in rows]):,.0f}"
        lines.append([label, *returns, steps, ", ".join(str(row["longest_horizon"]) for row in rows)])
    print(table(header, lines))


def facts(label, directory):
    [run] = finished_runs(directory)
    known = {name: run.summary.get(name) for name in FACTS}
    longest = max(row["horizon"] for row in run.metrics)
    return {"group": label, "seed": run.config["seed"], **known, "longest_horizon": longest}


def seeds(rows, name):
    numbers = [row[name] for row in rows if row[name] is not None]
    return f"{np.mean(numbers):.1f} ({', '.join(f'{number:.1f}' for number in numbers)})" if numbers else "–"


def plot(path, groups):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, figsize=(8, 7.5), sharex=True, height_ratios=[2, 1, 1], layout="constrained")
    for axis, (name, title) in zip(axes, PANELS.items(), strict=True):
        for label, directories in groups.items():
            # without the last rollout, which is cut to the run's total
            draw_band(axis, label, [curve(read_metrics(directory)[:-1], name) for directory in directories])
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    axes[-1].set(xlabel="env steps (millions)", ylim=(0, 1))
    figure.savefig(path, dpi=120)


def draw_band(axis, label, curves):
    curves = [(steps, numbers) for steps, numbers in curves if len(steps)]
    if curves:
        grid = np.linspace(max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves), 400)
        numbers = np.stack([np.interp(grid, *points) for points in curves])
        (line,) = axis.plot(grid / 1e6, numbers.mean(axis=0), label=label, linewidth=1.6)
        axis.fill_between(grid / 1e6, numbers.min(axis=0), numbers.max(axis=0), color=line.get_color(), alpha=0.2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = {"csv": write_curve, "table": write_table, "plot": plot}
    parser.add_argument("verb", choices=verbs)
    parser.add_argument("path", type=Path, help="the file to write")
    parser.add_argument("groups", nargs="+", metavar="[LABEL=]RUN[,RUN…]", help="run directories")
    given = parser.parse_args()
    if given.verb == "csv" and (len(given.groups) > 1 or "," in given.groups[0]):
        parser.error("csv takes one run")
    parts = [group.rpartition("=") for group in given.groups]
    verbs[given.verb](given.path, {label or runs: [Path(run) for run in runs.split(",")] for label, _, runs in parts})


if __name__ == "__main__":
    main()
