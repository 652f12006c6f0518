"""Puts faults into real commands and prints one table of what each led to.

    make test-faults                                             everything; about an hour
    make test-faults FAULTS="--out docs/results/faults.md"       the same, onto the page
    python -m tests.faults --only kills --number 20              the next twenty kills
    python -m tests.faults --only soak --hours 2                 one long run with faults of all kinds

Each try is a row of a CSV as soon as it is known, and what has a row is not tried again. The rows belong to the sources
of Swell as they stand: after a change all begins anew. The n-th try of a seed is the same on every machine.
"""

import argparse
import hashlib
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from kill import small_config
from tests.faults import disks, flips, inputs, kills, signals, soak
from tests.faults.page import render, write
from tests.faults.record import Kind, Row, append_row, faults_in, read_rows
from tests.faults.undisturbed import Workshop, without_places

import swell

KINDS: dict[str, Callable[[Workshop], Kind]] = {
    "kills": kills.kind,
    "flips": flips.kind,
    "disks": disks.kind,
    "signals": signals.kind,
    "inputs": inputs.kind,
}
IMPORTED_BEFORE_FORKS = ("swell.cli", "swell.runs.start", "swell.runs.export", "swell.report.write")


def main() -> None:
    given = arguments()
    take_signals_as_in_the_foreground()
    torch.set_num_threads(1)
    workshop = Workshop(given.work.resolve() / state_of_the_sources(), given.seed)
    workshop.directory.mkdir(parents=True, exist_ok=True)
    if {"disks", "soak"} & set(given.only):
        disks.begin_again_with_it(workshop)
    if given.only:
        prepare(workshop)
    for name in given.only:
        if name == "soak":
            append_row(workshop.directory / "soak.csv", soak.soak(workshop, given.hours))
        else:
            carry_out(workshop, name, given.number)
    record = {name: read_rows(workshop.directory / f"{name}.csv") for name in (*KINDS, "soak")}
    print(render(record))
    if given.out:
        write(given.out, record)
    sys.exit(0 if all(row.held for rows in record.values() for row in rows) else 1)


def take_signals_as_in_the_foreground() -> None:
    """A job in the background, or under nohup, would hand on to what it starts that these are ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        nargs="*",
        choices=[*KINDS, "soak"],
        default=list(KINDS),
        help="kinds; with none only the table is made",
    )
    parser.add_argument("--number", type=int, help="how many tries of each kind at most; by default all that are left")
    parser.add_argument("--hours", type=float, default=2.0, help="how long the soak is to take, roughly")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random here")
    parser.add_argument("--work", type=Path, default=Path("runs/faults"), help="where runs and rows are kept")
    parser.add_argument("--out", type=Path, help="page whose table is written anew")
    return parser.parse_args()


def state_of_the_sources() -> str:
    package = Path(swell.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def prepare(workshop: Workshop) -> None:
    """What every command would do first, done once: kernels compiled and loaded, modules imported."""
    from swell.kernels.factory import can_compile
    from swell.runs.compiling import compile_kernels
    from swell.runs.start import run

    if can_compile():
        compile_kernels()
    for name in (*IMPORTED_BEFORE_FORKS, *(["torch.utils.tensorboard"] if find_spec("tensorboard") else [])):
        import_module(name)
    for algorithm in ("pqn", "ppo"):
        config = small_config("CartPole-v1", algorithm=algorithm, total_env_steps=500)
        run(config, workshop.fresh("prepared") / "run", quiet=True)


def carry_out(workshop: Workshop, name: str, most: int | None) -> None:
    """The next tries of a kind, as many as are asked for."""
    kind, path = KINDS[name](workshop), workshop.directory / f"{name}.csv"
    done = {row.number for row in read_rows(path)}
    left = [number for number in range(kind.tries) if number not in done]
    started = time.monotonic()
    for nth, number in enumerate(left[:most], 1):
        row = kind.attempt(number)
        row = replace(row, line=without_places(row.line, workshop))
        append_row(path, row)
        if not row.held or nth % 20 == 0:
            say(name, row, f"{len(done) + nth} of {kind.tries} after {time.monotonic() - started:.0f} s")
    print(f"{name}: {faults_in(read_rows(path))} faults in {len(read_rows(path))} of {kind.tries} tries", flush=True)


def say(name: str, row: Row, progress: str) -> None:
    verdict = (
        "" if row.held else f"NOT HELD: {row.subject} | {row.fault} | {row.exit_code} | {row.outcome} | {row.line}"
    )
    print(f"{name} {progress} {verdict}", flush=True)


if __name__ == "__main__":
    main()
