"""The tables of docs/results/abs-minatar: per env and variant, and the adaptive batch against each rival.

    python benchmarks/abs_minatar.py bench --results docs/results/abs-minatar

reads the run directories that the `swell bench` commands on that page leave in `bench`.
"""

import argparse
from pathlib import Path

import numpy as np
from experiment import cell, mean_over_training, write_csv

from swell.report.records import read_runs
from swell.report.stats import bootstrap, interquartile_mean, probability_of_improvement

CLASSIC = ("CartPole-v1", "Acrobot-v1", "LunarLander-v3")
ADAPTIVE = "adaptive"


def row_of(record):
    log = record.log
    known = ~np.isnan(log.episode_return)
    points = [
        {"env_steps": steps, "episode_return": value}
        for steps, value in zip(log.env_steps[known], log.episode_return[known], strict=True)
    ]
    return {
        "env": record.env,
        "variant": record.label,
        "seed": record.seed,
        "status": record.status,
        "env_steps": record.summary["env_steps"],
        "gradient_steps": record.summary["gradient_steps"],
        "mean_horizon": float(np.mean(log.horizon)),
        "last_horizon": float(log.horizon[-1]),
        "first_reading": float(np.mean(log.readings[:3])),
        "last_reading": float(np.mean(log.readings[-3:])),
        "greedy_return": record.summary.get("evaluation_return", np.nan),
        "final_return": record.summary.get("final_return", np.nan),
        "mean_return": mean_over_training(points),
        "seconds": record.summary["wall_seconds"],
    }


def scores(rows, variant, quantity, envs):
    return {env: [row[quantity] for row in rows if (row["env"], row["variant"]) == (env, variant)] for env in envs}


def scaled(rows, quantity):
    """Every row's quantity on the scale of its env: 0 the worst run of any variant, 1 the best."""
    for env in {row["env"] for row in rows}:
        values = [row[quantity] for row in rows if row["env"] == env]
        low, high = min(values), max(values)
        for row in rows:
            if row["env"] == env:
                row[f"scaled_{quantity}"] = (row[quantity] - low) / ((high - low) or 1.0)


def per_env(rows, variants, envs, quantity):
    print("| env | " + " | ".join(variants) + " |\n|" + "---|" * (len(variants) + 1))
    for env in envs:
        print(f"| {env} | " + " | ".join(cell(scores(rows, v, quantity, [env])[env], 1) for v in variants) + " |")


def against(rows, variants, envs, quantity):
    """P(adaptive > rival) over the envs, the interquartile means, and how many gradient steps the rival made."""
    print(f"| variant | IQM of {quantity} | P(adaptive is better) | gradient steps / adaptive's |\n|---|---|---|---|")
    ours = scores(rows, ADAPTIVE, quantity, envs)
    for variant in variants:
        theirs = scores(rows, variant, quantity, envs)
        middle = bootstrap(interquartile_mean, scores(rows, variant, f"scaled_{quantity}", envs))
        ratios = [
            np.mean(scores(rows, variant, "gradient_steps", [env])[env])
            / np.mean(scores(rows, ADAPTIVE, "gradient_steps", [env])[env])
            for env in envs
        ]
        better = "–"
        if variant != ADAPTIVE:
            chance = bootstrap(probability_of_improvement, ours, theirs)
            better = f"{chance.value:.2f} [{chance.low:.2f}, {chance.high:.2f}]"
        iqm = f"{middle.value:.2f} [{middle.low:.2f}, {middle.high:.2f}]"
        print(f"| {variant} | {iqm} | {better} | {min(ratios):.2f} to {max(ratios):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    parser.add_argument("--results", type=Path, default=Path("docs/results/abs-minatar"))
    options = parser.parse_args()
    rows = [row_of(record) for record in read_runs([options.bench]) if record.status == "done"]
    rows.sort(key=lambda row: (row["env"], row["variant"], row["seed"]))
    options.results.mkdir(parents=True, exist_ok=True)
    write_csv(rows, options.results / "runs.csv")
    for quantity in ("greedy_return", "mean_return"):
        scaled(rows, quantity)
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    envs = list(dict.fromkeys(row["env"] for row in rows))
    for quantity in ("greedy_return", "mean_return"):
        print(f"\n{quantity}\n")
        per_env(rows, variants, envs, quantity)
        for name, chosen in (
            ("all", envs),
            ("MinAtar", [env for env in envs if env.startswith("MinAtar")]),
            ("classic", [env for env in envs if env in CLASSIC]),
        ):
            print(f"\n{name}\n")
            against(rows, variants, chosen, quantity)
    print("\nadaptive\n\n| env | mean, last horizon | first, last reading | gradient steps |\n|---|---|---|---|")
    for env in envs:
        mine = [row for row in rows if (row["env"], row["variant"]) == (env, ADAPTIVE)]
        mean = {
            name: np.mean([row[name] for row in mine]) for name in mine[0] if name not in ("env", "variant", "status")
        }
        print(
            f"| {env} | {mean['mean_horizon']:.0f}, {mean['last_horizon']:.0f} "
            f"| {mean['first_reading']:.2f}, {mean['last_reading']:.2f} | {mean['gradient_steps']:,.0f} |"
        )


if __name__ == "__main__":
    main()
