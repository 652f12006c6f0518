"""A disk that is full at each write by turn, once or from there on; then there is room again and the run is resumed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.cases import FEW_ROLLOUTS
from tests.faults.commands import Ended, forked
from tests.faults.record import Kind, Row
from tests.faults.undisturbed import Workshop, go_on, judged, train

FOR_EVER = 10**9


@dataclass(frozen=True)
class Command:
    """A command that writes into `run`, and whether a run is there already."""

    name: str
    words: Sequence[str]
    given: str
    under: str = "run"
    but: str = "/tensorboard"


COMMANDS = (
    Command("train", (), "nothing"),
    Command("resume", ("resume", "run", "--quiet"), "interrupted"),
    Command("train, TensorBoard's file", (), "nothing", "run/tensorboard", "nothing else"),
    Command("report", ("report", "run"), "whole"),
    Command("export", ("export", "run", "--format", "state-dict"), "whole"),
)


def kind(workshop: Workshop) -> Kind:
    """Each write of each command twice: this one and all that follow fail, or only this one."""
    writes = {command.name: some_of(command, writes_of(workshop, command)) for command in COMMANDS}
    plan = [
        (command, write, failing, what)
        for failing in (FOR_EVER, 1)
        for command in COMMANDS
        for write, what in writes[command.name]
    ]
    return Kind(len(plan), lambda number: attempt(workshop, number, *plan[number]))


def some_of(command: Command, writes: list[str]) -> list[tuple[int, str]]:
    """All, but of TensorBoard's, which are hundreds of one kind, five."""
    numbered = list(enumerate(writes, 1))
    return numbered[:: max(1, len(numbered) // 5)][:5] if "TensorBoard" in command.name else numbered


def attempt(workshop: Workshop, number: int, command: Command, write: int, failing: int, what: str) -> Row:
    directory = workshop.fresh("disk")
    ended = carried_out(workshop, command, directory, FULL_DISK_AT=str(write), FULL_DISK_FOR=str(failing))
    words, held = outcome_of(workshop, command, directory, ended)
    fault = f"write {write}, {what}: {'this one fails' if failing == 1 else 'full from here on'}"
    return Row(number, command.name, fault, ended.exit_code, ended.line, words, held)


def outcome_of(workshop: Workshop, command: Command, directory: Path, ended: Ended) -> tuple[str, bool]:
    """It goes on, or stops in a line with code 5; and once there is room, all is as if there always had been."""
    if ended.exit_code != 0 and not (ended.is_told and ended.exit_code == 5):
        return "did not end in a line with code 5", False
    if ended.has_traceback or "Traceback" in ended.err:
        return "a traceback on the way", False
    how = "went on" if ended.exit_code == 0 else "stopped in a line"
    if command.given != "whole":
        again = forked(go_on(FEW_ROLLOUTS, directory / "run"), directory).ended()
        words, held = judged(workshop, FEW_ROLLOUTS, directory / "run", again)
        return f"{how}; resumed, {words}" if words != "did not go on" else f"{how}; resumed: {again.line}", held
    again = carried_out(workshop, command, directory)
    return f"{how}; again, it worked" if again.exit_code == 0 else f"{how}; again: {again.line}", again.exit_code == 0


def carried_out(workshop: Workshop, command: Command, directory: Path, **full_disk: str) -> Ended:
    run = directory / "run"
    if command.given != "nothing" and not run.exists():
        shutil.copytree(
            workshop.whole(FEW_ROLLOUTS) if command.given == "whole" else workshop.interrupted(FEW_ROLLOUTS), run
        )
    words = [str(run) if word == "run" else word for word in command.words] or train(FEW_ROLLOUTS, run)
    where = {"FULL_DISK_UNDER": str(directory / command.under), "FULL_DISK_BUT": command.but}
    return forked(words, directory, **where, **full_disk).ended()


def writes_of(workshop: Workshop, command: Command) -> list[str]:
    """All writes of the command when there is room, in order: `fsync metrics.jsonl`."""
    directory = workshop.fresh("disk")
    log = workshop.directory / "writes"
    log.unlink(missing_ok=True)
    ended = carried_out(workshop, command, directory, FULL_DISK_LOG=str(log))
    assert ended.exit_code == 0, ended.err
    lines = [line.partition(" ")[::2] for line in log.read_text().splitlines()]
    return [f"{what} {os.path.relpath(path, directory)}" for what, path in lines]


def library(workshop: Workshop) -> Path:
    """full_disk.c, compiled; it needs a C compiler."""
    path = workshop.directory / "full_disk.so"
    if not path.exists():
        source = Path(__file__).with_name("full_disk.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl"], check=True)
    return path


def begin_again_with_it(workshop: Workshop) -> None:
    """This process begins anew with the library preloaded, which does nothing until the variables are set."""
    wanted = str(library(workshop))
    if os.environ.get("LD_PRELOAD") != wanted:
        arguments = [sys.executable, "-m", "tests.faults", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "LD_PRELOAD": wanted})
