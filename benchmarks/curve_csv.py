"""The curve of one run as a small CSV: one row per reading.

python benchmarks/curve_csv.py runs/breakout docs/results/breakout.csv
"""

import csv
import json
import sys
from pathlib import Path

COLUMNS = ["env_steps", "iteration", "horizon", "reading", "episode_return", "episodes", "gradient_steps", "loss"]


def main(directory, table):
    rows = [json.loads(line) for line in (Path(directory) / "metrics.jsonl").read_text().splitlines()]
    with open(table, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(row for row in rows if "reading" in row)


if __name__ == "__main__":
    main(*sys.argv[1:])
