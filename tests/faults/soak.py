"""One long run under kills, pauses, full disks and slow disks at random, beside the same run left alone."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.cases import CASES, Case, soak as soak_of
from tests.faults.commands import Ended, Running, start
from tests.faults.record import Row
from tests.faults.undisturbed import Workshop, go_on, judged

from swell.runs.run_directory import read_json

AT_WORK = 0.2
"""Share of its time in which a run under faults comes further; else it stands still, starts again, or does again."""
BETWEEN = (3.0, 25.0)
"""Seconds between two faults."""
STOPPED = (-signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM)
"""How a run ends that was killed or asked to stop; before it can listen, the system ends it."""


def soak(workshop: Workshop, hours: float) -> Row:
    """The same run is left alone beside it, if there is a second core."""
    case = soak_of(steps_in(workshop, AT_WORK * hours * 3600))
    directory, drawn = workshop.fresh("soak") / "run", random.Random(f"{workshop.seed} soak")
    done: Counter[str] = Counter()
    started = time.monotonic()
    with ThreadPoolExecutor() as beside:
        alone = beside.submit(workshop.whole, case, patience=hours * 3600)
        ended = endure(case, directory, drawn, done)
        minutes = (time.monotonic() - started) / 60
        alone.result()
    outcome, held = judged(workshop, case, directory, ended)
    faults = ", ".join(f"{count} × {name}" for name, count in done.items())
    return Row(
        0, case.name, f"{minutes:.0f} minutes with {faults}", ended.exit_code, ended.line, outcome, held, done.total()
    )


def steps_in(workshop: Workshop, seconds: float) -> int:
    """How far a run of this kind comes, by what a short one did."""
    summary = read_json(workshop.whole(CASES["ppo, worker processes"]) / "summary.json")
    return max(2000, 1000 * round(summary["steps_per_second"] * seconds / 1000))


def endure(case: Case, directory: Path, drawn: random.Random, done: Counter[str]) -> Ended:
    """Starts and resumes until the run is over; stops at the first end that no fault explains."""
    switch = directory.parent / "disk"
    while True:
        switch.unlink(missing_ok=True)
        where = {"FULL_DISK_UNDER": str(directory), "FULL_DISK_SWITCH": str(switch)}
        running = start(go_on(case, directory), directory.parent, **where)
        disturb(running, switch, drawn, done)
        ended = running.ended()
        running.left_behind()
        was_stopped = ended.exit_code in STOPPED
        if not was_stopped and not (ended.exit_code == 5 and ended.is_told):
            return ended


def disturb(running: Running, switch: Path, drawn: random.Random, done: Counter[str]) -> None:
    faults: dict[str, Callable[[], None]] = {
        "kill": lambda: running.send(signal.SIGKILL),
        "SIGTERM": lambda: running.send(signal.SIGTERM),
        "pause": lambda: pause(running, drawn.uniform(0.5, 40.0)),
        "full disk": lambda: disk(switch, "full", drawn.uniform(0.5, 8.0)),
        "slow disk": lambda: disk(switch, "30", drawn.uniform(2.0, 8.0)),
    }
    while not wait_for_end(running, drawn.uniform(*BETWEEN)):
        name = drawn.choice(list(faults))
        faults[name]()
        done[name] += 1


def wait_for_end(running: Running, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not running.is_over() and time.monotonic() < until:
        time.sleep(0.02)
    return running.is_over()


def pause(running: Running, seconds: float) -> None:
    """All of its processes stand still."""
    running.send(signal.SIGSTOP, to_all=True)
    time.sleep(seconds)
    running.send(signal.SIGCONT, to_all=True)


def disk(switch: Path, state: str, seconds: float) -> None:
    switch.write_text(state)
    time.sleep(seconds)
    switch.unlink()
