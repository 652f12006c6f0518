"""What an env step costs on each side of the zero-regret study: seconds.csv, for scores after equal time.

    python -m benchmarks.zero_regret_clock --results docs/results/zero-regret

The runs of the study itself share their machine with others, so that their clocks tell little. Here runs of a tenth
of the length take turns, all sides of an env in one round after the other, and the median of the rounds counts.
"""

import argparse
import csv
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.study import read_metrics
from benchmarks.zero_regret import BENCHES, CLOCKED, training_seconds

from swell import run
from swell.bench.plan import make_plan

SHARE = 0.1
"""Of the env steps of the study."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("runs/zero-regret"), help="where seconds.csv goes")
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    with open(given.results / "seconds.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["env", "variant", "microseconds_per_env_step", "lowest", "highest"])
        for bench in BENCHES:
            for env in bench.envs:
                for name, found in clocked(bench, env, given.rounds).items():
                    row = [env, name, *(f"{value:.2f}" for value in (median(found), min(found), max(found)))]
                    writer.writerow(row)
                    print(*row, flush=True)


def clocked(bench, env, rounds):
    """Side -> microseconds per env step in each round."""
    sides = [side for side in bench.sides if side.columns["variant"] in CLOCKED]
    shared = {**bench.options, "total_env_steps": int(SHARE * bench.steps), "threads": 1, "evaluation_episodes": 0}
    plan = make_plan([env], [f"{side.label}={side.variant}" for side in sides], seeds=1, shared=shared)
    names = {side.label: side.columns["variant"] for side in sides}
    found = {name: [] for name in names.values()}
    for _ in range(rounds):
        for planned in plan:
            with TemporaryDirectory() as directory:
                run(planned.config, Path(directory) / "run", quiet=True)
                steps, seconds = training_seconds(read_metrics(Path(directory) / "run"))
            # Without the first iteration, which loads and warms what all need.
            found[names[planned.config.label]].append(1e6 * (seconds[-1] - seconds[1]) / (steps[-1] - steps[1]))
    return found


if __name__ == "__main__":
    main()
