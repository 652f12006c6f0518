"""A table of finished runs: final return of each seed, their mean, gradient steps and the longest horizon.

    python benchmarks/table.py results.csv adaptive=runs/a-s1,runs/a-s2 fixed=runs/f-s1,runs/f-s2

Writes one line a run to the CSV and prints one row a group as Markdown.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

COLUMNS = ["group", "seed", "env_steps", "gradient_steps", "final_return", "evaluation_return", "longest_horizon"]


def facts(group, directory):
    directory = Path(directory)
    summary = json.loads((directory / "summary.json").read_text())
    seed = json.loads((directory / "config.json").read_text())["config"]["seed"]
    horizons = [json.loads(line)["horizon"] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    found = {**summary, "group": group, "seed": seed, "longest_horizon": max(horizons)}
    return {name: found.get(name) for name in COLUMNS}


def describe(rows, name):
    values = [row[name] for row in rows if row[name] is not None]
    if not values:
        return "–"
    return f"{np.mean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})"


def main(table, *groups):
    found = {}
    for group in groups:
        label, directories = group.split("=", 1)
        found[label] = [facts(label, directory) for directory in directories.split(",")]
    with open(table, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(row for rows in found.values() for row in rows)
    print("| | final training return: mean (seeds) | greedy return: mean (seeds) | gradient steps | longest horizon |")
    print("|---|---|---|---|---|")
    for label, rows in found.items():
        steps = f"{np.mean([row['gradient_steps'] for row in rows]):,.0f}"
        longest = ", ".join(str(row["longest_horizon"]) for row in rows)
        cells = [label, describe(rows, "final_return"), describe(rows, "evaluation_return"), steps, longest]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
