"""The tables of docs/results/abs-minatar: per env and variant, and the adaptive batch against each rival.

    python -m benchmarks.abs_minatar bench --results docs/results/abs-minatar

reads the run directories that the `swell bench` commands on that page leave in `bench`.
"""

import argparse
from pathlib import Path

import numpy as np
from benchmarks.study import cell, finished_runs, mean_over_training, table, values, write_csv

from swell.report.stats import bootstrap, interquartile_mean, probability_of_improvement

CLASSIC = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3")
ADAPTIVE = "adaptive"


def row_of(run):
    rows, summary = run.metrics, run.summary
    readings = [row["reading"] for row in rows if row.get("reading") is not None]
    horizons = [row["horizon"] for row in rows[:-1]]
    horizons.append(rows[-2]["next_horizon"])  # as planned: the last rollout is cut to the run's total
    return {
        "env": run.config["env"],
        "variant": run.label,
        "seed": run.config["seed"],
        "status": summary["status"],
        "env_steps": summary["env_steps"],
        "gradient_steps": summary["gradient_steps"],
        "mean_horizon": float(np.mean(horizons)),
        "last_horizon": float(horizons[-1]),
        "first_reading": float(np.mean(readings[:3])),
        "last_reading": float(np.mean(readings[-3:])),
        "greedy_return": summary.get("evaluation_return", np.nan),
        "final_return": summary.get("final_return", np.nan),
        "mean_return": mean_over_training(rows),
        "seconds": summary["wall_seconds"],
    }


def scores(rows, variant, quantity, envs):
    return {env: values(rows, quantity, env=env, variant=variant) for env in envs}


def scaled(rows, quantity, envs):
    """Rows whose quantity is on the scale of its env: 0 the worst run of any variant, 1 the best."""
    ends = {env: (min(values(rows, quantity, env=env)), max(values(rows, quantity, env=env))) for env in envs}
    return [
        {**row, quantity: (row[quantity] - low) / ((high - low) or 1.0)}
        for row in rows
        for low, high in [ends[row["env"]]]
    ]


def better(rows, variant, quantity, envs):
    """P(adaptive > rival) over the envs."""
    if variant == ADAPTIVE or not envs:
        return "–"
    sides = (scores(rows, side, quantity, envs) for side in (ADAPTIVE, variant))
    return with_interval(bootstrap(probability_of_improvement, *sides))


def gradient_steps(rows, variant, envs):
    """The rival's over the adaptive variant's: the least and the most of any env."""
    theirs, ours = (scores(rows, side, "gradient_steps", envs) for side in (variant, ADAPTIVE))
    ratios = [np.mean(theirs[env]) / np.mean(ours[env]) for env in envs]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def with_interval(found):
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def tables(rows):
    envs, variants = (list(dict.fromkeys(row[name] for row in rows)) for name in ("env", "variant"))
    groups = {
        "P(adaptive is better), all": envs,
        "MinAtar": [env for env in envs if env.startswith("MinAtar")],
        "classic control": [env for env in envs if env in CLASSIC],
    }
    for quantity in ("greedy_return", "mean_return"):
        per_env = [[env, *(cell(values(rows, quantity, env=env, variant=v)) for v in variants)] for env in envs]
        yield f"\n{quantity}\n" + table(["env", *variants], per_env)
        relative, against = scaled(rows, quantity, envs), []
        for variant in variants:
            middle = with_interval(bootstrap(interquartile_mean, scores(relative, variant, quantity, envs)))
            chance, steps = better(rows, variant, quantity, envs), gradient_steps(rows, variant, envs)
            against.append([variant, middle, chance, steps])
        yield table(["variant", "IQM of scores", "P(adaptive is better)", "gradient steps / adaptive's"], against)
        chances = [[v, *(better(rows, v, quantity, chosen) for chosen in groups.values())] for v in variants]
        yield table(["variant", *groups], chances)
    names = ("mean_horizon", "last_horizon", "first_reading", "last_reading", "gradient_steps")
    means = [[env, *(f"{np.mean(values(rows, n, env=env, variant=ADAPTIVE)):,.2f}" for n in names)] for env in envs]
    yield "\nadaptive\n" + table(["env", *names], means)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path, help="the directory that `swell bench` was given")
    parser.add_argument("--results", type=Path, help="where runs.csv goes; by default beside the runs")
    given = parser.parse_args()
    rows = [row_of(run) for run in finished_runs(given.bench) if run.summary["status"] == "done"]
    write_csv(rows, (given.results or given.bench) / "runs.csv")
    print(*tables(rows), sep="\n")


if __name__ == "__main__":
    main()
