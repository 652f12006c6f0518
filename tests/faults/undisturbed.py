"""Runs that nothing disturbed, made once, and whether a disturbed one ended as they did."""

import re
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kill import outcome, read_jsonl, same
from tests.faults.cases import Case
from tests.faults.commands import PATIENCE, Ended, forked

from swell.runs.run_directory import read_json

STATE = ("state",)
"""What of an outcome is no log."""


@dataclass(frozen=True)
class Workshop:
    """A directory for runs, and the seed of all that is random here."""

    directory: Path
    seed: int

    def fresh(self, name: str) -> Path:
        """An empty place for one try."""
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def whole(self, case: Case, patience: float = PATIENCE) -> Path:
        """The run of this case from its start to its end in one go."""
        directory = self.directory / "whole" / _plain(case.name)
        if not (directory / "summary.json").exists():
            shutil.rmtree(directory, ignore_errors=True)
            ended = forked(train(case, directory), self.fresh("cwd")).ended(patience)
            assert ended.exit_code == 0, f"{case.name}: {ended.err}"
        return directory

    def interrupted(self, case: Case) -> Path:
        """The same run, asked to stop after six tenths of its log."""
        directory = self.directory / "interrupted" / _plain(case.name)
        if not (directory / "summary.json").exists():
            shutil.rmtree(directory, ignore_errors=True)
            size = 0.6 * log_size(self.whole(case))
            running = forked(train(case, directory), self.fresh("cwd"))
            while log_size(directory) < size and not running.is_over():
                pass
            running.send(15)
            assert running.ended().exit_code == 143, "the run ended before it could be asked to stop"
        return directory

    def expected(self, case: Case) -> dict[str, Any]:
        return _outcome(self.whole(case))


def without_places(line: str, workshop: Workshop) -> str:
    """Without colours, and with the place of a try as `.`: the same on every machine."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    line = re.sub(rf"{re.escape(str(workshop.directory))}/(\w+)", ".", line)
    return line.replace(sys.prefix, "VENV")


def train(case: Case, directory: Path) -> list[str]:
    """The command that begins this run."""
    return ["train", case.env, *case.flags(), "--out", str(directory), "--quiet"]


def go_on(case: Case, directory: Path) -> list[str]:
    """The command that a person would type next."""
    has_begun = (directory / "config.json").exists()
    return ["resume", str(directory), "--quiet"] if has_begun else train(case, directory)


def judged(workshop: Workshop, case: Case, directory: Path, ended: Ended) -> tuple[str, bool]:
    """In words how a run that was let go on has ended, and whether that is what was promised."""
    if ended.exit_code != 0 or ended.has_traceback:
        return "did not go on", False
    if not case.is_exact:
        return ("went on to its end", True) if is_complete(directory) else ("log with holes", False)
    expected, found = workshop.expected(case), outcome(directory)
    if same(found, expected):
        return "bit-identical", True
    if all(same(found[part], expected[part]) for part in STATE):
        return "same weights and state, other logs", False
    return "ended differently", False


def is_complete(directory: Path) -> bool:
    """Done, with each iteration in the log once."""
    iterations = [row["iteration"] for row in read_jsonl(directory / "metrics.jsonl")]
    return read_json(directory / "summary.json")["status"] == "done" and iterations == [*range(1, len(iterations) + 1)]


def log_size(directory: Path) -> int:
    log = directory / "metrics.jsonl"
    return log.stat().st_size if log.exists() else 0


@cache
def _outcome(directory: Path) -> dict[str, Any]:
    return outcome(directory)


def _plain(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")
