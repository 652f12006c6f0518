"""SIGKILL at random moments: each run is started by `python -m swell`, killed once to three times and then finished."""

import random
import signal
import time
from pathlib import Path

from tests.faults.cases import CASES
from tests.faults.commands import Running, forked, start
from tests.faults.record import Kind, Row
from tests.faults.undisturbed import Workshop, go_on, judged, log_size

ROUNDS = 7
KILLS = (1, 2, 3)
AT_START = 0.15
"""Share of kills by the clock, while a command imports, starts envs or restores."""
START_SECONDS = 4.0


def kind(workshop: Workshop) -> Kind:
    return Kind(ROUNDS * len(CASES), lambda number: attempt(workshop, number))


def attempt(workshop: Workshop, number: int) -> Row:
    case = list(CASES.values())[number % len(CASES)]
    drawn = random.Random(f"{workshop.seed} kill {number}")
    directory = workshop.fresh("kill") / "run"
    whole_log = log_size(workshop.whole(case))
    moments, orphans = [], []
    for _ in range(drawn.choice(KILLS)):
        has_begun = (directory / "config.json").exists()
        running = (forked if has_begun else start)(go_on(case, directory), directory.parent)
        moment = wait_for_moment(running, directory, drawn, whole_log)
        running.send(signal.SIGKILL)
        if running.ended().exit_code == -signal.SIGKILL:
            moments.append(moment)
        orphans += running.left_behind()
    ended = forked(go_on(case, directory), directory.parent).ended()
    outcome, held = judged(workshop, case, directory, ended)
    if orphans:
        outcome, held = f"{outcome}, {len(orphans)} processes left behind", False
    return Row(number, case.name, " · ".join(moments), ended.exit_code, ended.line, outcome, held, len(moments))


def wait_for_moment(running: Running, directory: Path, drawn: random.Random, whole_log: int) -> str:
    """Where the log has come to a drawn length, or, of a command that finds it longer, some time after its start."""
    share, after, seconds = drawn.random(), drawn.uniform(0.0, 0.05), drawn.uniform(0.0, START_SECONDS)
    if drawn.random() < AT_START or log_size(directory) >= share * whole_log:
        started = time.monotonic()
        while time.monotonic() - started < seconds and not running.is_over():
            time.sleep(0.005)
        return f"{seconds:.2f} s after its start"
    while log_size(directory) < share * whole_log and not running.is_over():
        time.sleep(0.0005)
    time.sleep(after)
    return f"{share:.0%} of the log"
