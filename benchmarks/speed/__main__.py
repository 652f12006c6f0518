"""Measures how fast Swell trains and writes a table.

    make bench                                                        everything, into docs/results/speed.md
    python -m benchmarks.speed --only cartpole-pqn --blocks 2 --seconds 1
    python -m benchmarks.speed --only atari --beside atari "Name@commit, settings" "command that trains"

What is not measured this time stays on the page as it was. --beside may be given as often as there are others.
A command beside ours is run once a block, in turns with ours. It prints `steps_per_second: X`, its rate without
start-up. If it also prints `wall_seconds: X` and `env_steps: N`, time and length of the whole command, our whole
command of that length is timed as well.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from .machine import describe_machine
from .record import Measured, goes, newest, read_record, write_record
from .rows import Rounds, horizon_rows, measure_rows, memory_rows, rank_rows, start_rows, workload_rows
from .table import Result, Skipped, insert, render
from .turns import SideFailedError
from .workloads import OTHER_ROWS, WORKLOADS

ROWS: dict[str, Callable[[Rounds], Iterator[Result]]] = {
    "horizon": horizon_rows,
    "measure": measure_rows,
    "memory": memory_rows,
    "start": start_rows,
    "ranks": rank_rows,
}
NAMES = (*WORKLOADS, *OTHER_ROWS)


def main() -> None:
    given = arguments()
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", flush=True)

    rounds = Rounds(given.blocks, given.seconds, say)
    machine = {**describe_machine(), "blocks": f"{given.blocks} of {given.seconds:g} s or one iteration, medians"}
    measured = read_record(given.out.with_suffix(".json"))
    for name in given.only:
        say(name)
        results: list[Result] = []
        besides = [(label, command) for workload, label, command in given.beside if workload == name]
        rows = partial(workload_rows, WORKLOADS[name], besides) if name in WORKLOADS else ROWS[name]
        for result in surviving(name, rows(rounds)):
            results.append(result)
            if isinstance(result, Skipped):
                say(f"  {result.row}: {result.reason}")
            measured[name] = Measured(results, machine)
            write(given.out, measured)
    print(f"\n{report(measured)}\n")
    say(f"written to {given.out} and {given.out.with_suffix('.json')}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="ROW", help=", ".join(NAMES))
    parser.add_argument("--beside", nargs=3, action="append", default=[], metavar=("WORKLOAD", "LABEL", "COMMAND"))
    parser.add_argument("--blocks", type=int, default=5, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn; an iteration is always finished")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/speed.md"), help="page; its numbers go beside it, as JSON"
    )
    given = parser.parse_args()
    for workload, label, _ in given.beside:
        if workload not in WORKLOADS:
            parser.error(f"--beside needs one of {', '.join(WORKLOADS)}, got {workload!r} for {label!r}")
    labels = [(workload, label) for workload, label, _ in given.beside]
    if len(set(labels)) < len(labels):
        parser.error("--beside needs a label of its own for each command of a workload")
    if given.blocks < 1 or given.seconds <= 0:
        parser.error(f"--blocks must be at least 1 and --seconds more than 0, got {given.blocks} and {given.seconds}")
    return given


def surviving(name: str, rows: Iterator[Result]) -> Iterator[Result]:
    """The rows; where a side fails, the reason in place of what would have followed."""
    try:
        yield from rows
    except SideFailedError as error:
        yield Skipped(name, str(error))


def write(page: Path, measured: Mapping[str, Measured]) -> None:
    """Everything so far, so that a crash loses nothing."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(insert(page.read_text() if page.exists() else "", report(measured)))
    write_record(page.with_suffix(".json"), measured)


def report(measured: Mapping[str, Measured]) -> str:
    """The tables, in the order of the workloads, whichever was measured last."""
    ordered = {name: measured[name] for name in NAMES if name in measured}
    results = [result for one in ordered.values() for result in one.results]
    titles = {name: workload.title for name, workload in WORKLOADS.items()}
    return render(results, newest(ordered), titles, goes(ordered))


if __name__ == "__main__":
    main()
