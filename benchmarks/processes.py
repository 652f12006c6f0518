"""How fast one run is when several processes of this machine share it, and how long they take to add up a gradient.

    python -m benchmarks.processes --results docs/results
    python -m benchmarks.processes --only atari --sides 1x1 1x2 2x1 --rounds 5 --iterations 8

Trains the same run with other numbers of processes and threads, in turns, each round backwards from the last, and
times all-reduces through gloo. Writes processes.csv, a row a measurement, and prints the table of docs/scaling.md.
Seconds are the medians of a run's iterations after its first, so start-up and compilation are no part of them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.speed.machine import describe_machine, load
from benchmarks.study import read_csv, read_metrics, table, values, write_csv

SIDES = {"1 × 1": (1, 1), "1 × 2": (1, 2), "2 × 1": (2, 1), "4 × 1": (4, 1)}
"""Processes and the threads of each."""
SIDES_TYPED = {side.replace(" × ", "x"): side for side in SIDES}
MESSAGE_FLOATS = (1, 10_000, 100_000, 1_700_000)
MESSAGE_GROUPS = (2, 4)
PARTS = ("act", "env", "update")


@dataclass(frozen=True)
class Workload:
    """A run of few iterations, always with the same batch."""

    env: str
    algorithm: str
    num_envs: int
    horizon: int
    iterations: int
    minibatches: int

    def config(self):
        from swell.presets import make_config

        return make_config(self.env, **self.options())

    def options(self):
        return {
            "algorithm": self.algorithm,
            "num_envs": self.num_envs,
            "scaler": "fixed",
            "horizon": self.horizon,
            "minibatches": self.minibatches,
            "total_env_steps": self.num_envs * self.horizon * self.iterations,
            "evaluation_episodes": 0,
        }

    def command(self, processes, threads, directory):
        options = self.options()
        options["steps"] = options.pop("total_env_steps")
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        shared = [f"--processes={processes}", f"--threads={processes * threads}", "--quiet", f"--out={directory}"]
        return [sys.executable, "-m", "swell", "train", self.env, *words, *shared]


WORKLOADS = {
    "Atari Breakout, pqn": Workload("breakout", "pqn", num_envs=64, horizon=16, iterations=4, minibatches=2),
    "MinAtar Breakout, pqn": Workload(
        "MinAtar/Breakout-v1", "pqn", num_envs=32, horizon=32, iterations=12, minibatches=16
    ),
    "CartPole, ppo": Workload("CartPole-v1", "ppo", num_envs=8, horizon=128, iterations=12, minibatches=8),
}
ONLY = {"messages": None, **{name.split()[0].lower(): name for name in WORKLOADS}}
"""What is measured, as one types it."""

COLUMNS = (
    *("kind", "workload", "processes", "threads", "round", "floats", "batch", "minibatch", "gradient_steps"),
    *("steps_per_second", "seconds", *(f"seconds_{part}" for part in PARTS), "load", "cpu"),
)


def measure(rounds, workloads, sides, with_messages):
    """Rows, as they are measured."""
    weights = {name: count_weights(workload) for name, workload in workloads.items()}
    for turn in rounds:
        for processes in MESSAGE_GROUPS if with_messages else ():
            yield from ({**row, "round": turn + 1} for row in time_messages(processes))
        for name, workload in workloads.items():
            for side in sides[:: -1 if turn % 2 else 1]:
                row = train(workload, *SIDES[side])
                print(f"round {turn + 1}, {name}, {side}: {row['steps_per_second']:,.0f} steps/s", flush=True)
                yield {"workload": name, "floats": weights[name], "round": turn + 1, **row}


def count_weights(workload):
    """Of the network whose gradient is sent."""
    from swell.runs.build import build

    return sum(parameter.numel() for parameter in build(workload.config()).learner.network.parameters())


def train(workload, processes, threads):
    busy = load()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "run"
        subprocess.run(workload.command(processes, threads, directory), check=True, stdout=subprocess.DEVNULL)
        metrics = read_metrics(directory)
    return {"kind": "training", "processes": processes, "threads": threads, **typical_iteration(metrics), "load": busy}


def typical_iteration(metrics):
    """Medians over whole iterations but the first, which compiles and fills caches."""
    pairs = [(before, row) for before, row in pairwise(metrics) if row["horizon"] == before["horizon"]]
    last = pairs[-1][1]
    seconds = statistics.median(row["batch_size"] / row["steps_per_second"] for _, row in pairs)
    batch = statistics.median(row["batch_size"] for _, row in pairs)
    parts = {
        f"seconds_{part}": statistics.median(
            row[f"seconds_{part}"] - before[f"seconds_{part}"] for before, row in pairs
        )
        for part in PARTS
    }
    return {
        "batch": round(batch),
        "minibatch": last["minibatch_size"],
        "gradient_steps": statistics.median(row["gradient_steps"] - before["gradient_steps"] for before, row in pairs),
        "steps_per_second": round(batch / seconds, 1),
        "seconds": round(seconds, 6),
        **{name: round(value, 6) for name, value in parts.items()},
    }


def time_messages(processes):
    """One row for each size of a message."""
    import torch.multiprocessing

    busy = load()
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.spawn(_take_part, (processes, place), nprocs=processes)
        found = [float(line) for line in (Path(place) / "seconds").read_text().split()]
    shared = {"kind": "all-reduce", "processes": processes, "threads": 1, "load": busy}
    return [{**shared, "floats": floats, "seconds": s} for floats, s in zip(MESSAGE_FLOATS, found, strict=True)]


def _take_part(rank, processes, place):
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meeting", rank=rank, world_size=processes)
    medians = []
    for floats in MESSAGE_FLOATS:
        numbers, seconds = torch.zeros(floats), []
        for _ in range(5 + (30 if floats > 1_000_000 else 100)):
            torch.distributed.barrier()
            started = time.perf_counter()
            torch.distributed.all_reduce(numbers)
            seconds.append(time.perf_counter() - started)
        medians.append(statistics.median(seconds[5:]))
    if rank == 0:
        (Path(place) / "seconds").write_text("\n".join(f"{median:.7f}" for median in medians))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def rates(rows, workload):
    """Medians over rounds, by side."""
    found = {}
    for side, (processes, threads) in SIDES.items():
        known = values(rows, "steps_per_second", workload=workload, processes=processes, threads=threads)
        if known:
            found[side] = statistics.median(known)
    return found


def report(rows):
    lines = []
    for workload in dict.fromkeys(row["workload"] for row in rows if row["kind"] == "training"):
        found = rates(rows, workload)
        alone = [found[side] for side in ("1 × 1", "1 × 2") if side in found]
        ratio = f"{found['2 × 1'] / max(alone):.2f}" if alone and "2 × 1" in found else "–"
        lines.append([workload, *(f"{found[side]:,.0f}" if side in found else "–" for side in SIDES), ratio])
    if lines:
        print(table(["env steps/s", *SIDES, "2 × 1 over the better of one process"], lines))
    lines = []
    for processes in sorted({row["processes"] for row in rows if row["kind"] == "all-reduce"}):
        known = [
            values(rows, "seconds", kind="all-reduce", processes=processes, floats=size) for size in MESSAGE_FLOATS
        ]
        lines.append([processes, *(f"{1000 * statistics.median(seconds):.2f}" for seconds in known)])
    if lines:
        print(table(["all-reduce, ms", *(f"{size:,}" for size in MESSAGE_FLOATS)], lines))
    loads = [row["load"] for row in rows]
    rounds = max(row["round"] for row in rows)
    print(f"\n{rows[0]['cpu']}; {rounds} rounds; load {min(loads):.1f} to {max(loads):.1f}, our processes included")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side")
    parser.add_argument("--only", nargs="+", choices=ONLY, default=list(ONLY), help="what to measure")
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES_TYPED, default=list(SIDES_TYPED), help="processes x threads of each"
    )
    parser.add_argument("--iterations", type=int, help="of each run; the first is not timed")
    parser.add_argument(
        "--results", type=Path, default=Path("runs/processes"), help="where the CSV goes; rounds in it stay"
    )
    parser.add_argument("--report-only", action="store_true", help="measure nothing; report what is there")
    given = parser.parse_args()
    path = given.results / "processes.csv"
    if not given.report_only:
        os.makedirs(given.results, exist_ok=True)
        machine, rows = describe_machine()["CPU"], read_csv(path) if path.exists() else []
        done = max((row["round"] for row in rows), default=0)
        changes = {"iterations": given.iterations} if given.iterations else {}
        workloads = {name: replace(WORKLOADS[name], **changes) for name in map(ONLY.get, given.only) if name}
        sides = [SIDES_TYPED[side] for side in given.sides]
        for row in measure(range(done, done + given.rounds), workloads, sides, "messages" in given.only):
            rows.append({column: {**row, "cpu": machine}.get(column) for column in COLUMNS})
            write_csv(rows, path)  # what is measured stays if the next run is stopped
    report(read_csv(path))


if __name__ == "__main__":
    main()
