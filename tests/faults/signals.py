"""Every signal in every phase of a run; then it is resumed."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from tests.faults.cases import CASES, SHORT_PQN, Case
from tests.faults.commands import Ended, Running, forked, start
from tests.faults.record import Kind, Row
from tests.faults.undisturbed import Workshop, go_on, judged, log_size, train

WITH_WORKERS = CASES["pqn, worker processes"]


@dataclass(frozen=True)
class Phase:
    """Where in a command a signal comes: at this call of this function."""

    words: str
    target: str = ""
    call: int = 1
    command: tuple[str, ...] = ()
    """By default the training of a new run."""
    given: str = "nothing"


PHASES = (
    Phase("starting envs", "swell.runs.start:build"),
    Phase("acting", "swell.collect.collector:Collector.collect", 8),
    Phase("updating", "swell.algorithms.pqn:PQN.update", 8),
    Phase("logging", "swell.runs.driver:JsonLines.write", 10),
    Phase("saving: a file", "swell.runs.checkpoint:write_durably", 5),
    Phase("saving: the rename", "swell.runs.checkpoint:_publish", 2),
    Phase("evaluating", "swell.algorithms.pqn:PQN.greedy_actions", 12),
    Phase("writing the summary", "swell.runs.driver:Run._summarise"),
    Phase("restoring", "swell.runs.start:load_newest", 1, ("resume", "run", "--quiet"), "interrupted"),
    Phase(
        "swell evaluate", "swell.algorithms.pqn:PQN.greedy_actions", 20, ("evaluate", "run", "--episodes", "3"), "whole"
    ),
    Phase("swell report", "swell.report.write:render", 1, ("report", "run"), "whole"),
)
ENDING = ("SIGINT", "SIGINT twice", "SIGTERM")
"""Ctrl-C, impatience, and what a cluster sends: a run saves first."""
FATAL = ("SIGHUP", "SIGQUIT", "SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
"""The system ends the process at once, as it does with SIGKILL."""
HARMLESS = ("SIGPIPE", "SIGXFSZ", "SIGCHLD", "SIGWINCH", "SIGURG", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN")
"""Ignored, or the process stands still until it is sent on."""
SIGNALS = (*ENDING, *FATAL, *HARMLESS)
OUTSIDE = (
    ("importing", SHORT_PQN, 0.05, 0.6, False),
    ("training, only the first process is told", WITH_WORKERS, 0.2, 0.8, False),
    ("training, all processes are told as by a terminal", WITH_WORKERS, 0.2, 0.8, True),
)
"""By a process of its own: in these the moment is drawn, by the clock or by the length of the log."""
TRIES_OUTSIDE = 3


def kind(workshop: Workshop) -> Kind:
    inside = [(phase, name) for phase in PHASES for name in SIGNALS]
    outside = [(phase, name, nth) for phase in OUTSIDE for name in ENDING for nth in range(TRIES_OUTSIDE)]

    def attempt(number: int) -> Row:
        if number < len(inside):
            return at_a_call(workshop, number, *inside[number])
        phase, name, _ = outside[number - len(inside)]
        return from_outside(workshop, number, *phase, name)

    return Kind(len(inside) + len(outside), attempt)


def at_a_call(workshop: Workshop, number: int, phase: Phase, name: str) -> Row:
    directory = workshop.fresh("signal")
    run = directory / "run"
    if phase.given != "nothing":
        shutil.copytree(workshop.whole(SHORT_PQN) if phase.given == "whole" else workshop.interrupted(SHORT_PQN), run)
    command = phase.command or train(SHORT_PQN, run)
    came = directory / "came"
    running = forked(command, directory, lambda: signal_at(phase, name, came))
    row = told(workshop, number, SHORT_PQN, phase.words, name, run, running, phase.given == "whole")
    return row if came.exists() else replace(row, outcome="the signal never came", held=False)


def signal_at(phase: Phase, name: str, came: Path) -> None:
    """Has the process send itself the signal right before that call, and leave a file that says so."""
    module, _, path = phase.target.partition(":")
    *owners, last = path.split(".")
    owner = import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    original, calls = getattr(owner, last), 0

    def wrapped(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == phase.call:
            came.touch()
            send(name, lambda number: os.kill(os.getpid(), number))
        return original(*arguments, **named)

    setattr(owner, last, wrapped)


def send(name: str, kill: Callable[[int], None]) -> None:
    for _ in range(2 if name.endswith("twice") else 1):
        kill(getattr(signal, name.split()[0]))


def from_outside(
    workshop: Workshop, number: int, words: str, case: Case, low: float, high: float, to_all: bool, name: str
) -> Row:
    drawn = random.Random(f"{workshop.seed} signal {number}").uniform(low, high)
    run = workshop.fresh("signal") / "run"
    running = start(train(case, run), run.parent)
    if words == "importing":
        time.sleep(drawn)
    else:
        size = drawn * log_size(workshop.whole(case))
        while log_size(run) < size and not running.is_over():
            time.sleep(0.0005)
    send(name, lambda signal_number: running.send(signal_number, to_all))
    return told(workshop, number, case, words, name, run, running, False)


def told(
    workshop: Workshop,
    number: int,
    case: Case,
    words: str,
    name: str,
    run: Path,
    running: Running,
    is_whole: bool,
) -> Row:
    """The row of one signal: how the command ended, and what the next one made of the run."""
    ended = running.ended()
    orphans = running.left_behind()
    how, held = how_it_ended(words, name, ended)
    if not is_whole or not (run / "summary.json").exists():
        ended_later = (forked if case == SHORT_PQN else start)(go_on(case, run), run.parent).ended()
        later, is_same = judged(workshop, case, run, ended_later)
        how, held = f"{how}; resumed, {later}", held and is_same
    if orphans:
        how, held = f"{how}; {len(orphans)} processes left behind", False
    return Row(number, words, name, ended.exit_code, ended.line, how, held)


def how_it_ended(phase: str, name: str, ended: Ended) -> tuple[str, bool]:
    if "Traceback" in ended.err:
        return "a traceback", False
    allowed = codes(phase, name)
    if ended.exit_code not in allowed:
        return f"exit code {ended.exit_code}, not {' or '.join(map(str, allowed))}", False
    return {0: "went on to its end"}.get(ended.exit_code, "ended"), True


def codes(phase: str, name: str) -> Sequence[int]:
    """Killed by signal n, or ended with 128 + n: a shell shows both alike. Whoever is done anyway may end well."""
    if name in HARMLESS:
        return (0,)
    number = getattr(signal, name.split()[0])
    return (128 + number, -number, *([0] if name in ENDING and phase == "writing the summary" else []))
