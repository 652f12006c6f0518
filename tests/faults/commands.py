"""`swell` as a process of its own, or forked from this one, which has torch imported already."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PATIENCE = 180.0
"""Seconds after which a command counts as hung."""
HUNG = 999
"""Stands for the exit code of a command that had to be killed."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    exit_code: int
    out: str
    err: str
    seconds: float

    @property
    def line(self) -> str:
        """The last line that a user reads; of the box that tyro draws around what it cannot parse, the first."""
        lines = [line for line in (self.err.strip() or self.out.strip()).splitlines() if line.strip()]
        boxed = [line.strip("│ ") for line in lines if line.startswith("│")]
        return boxed[0] if boxed and lines[-1].startswith("╰") else lines[-1].strip() if lines else ""

    @property
    def has_traceback(self) -> bool:
        return "Traceback" in self.err + self.out or "swell: unexpected" in self.err or self.exit_code == HUNG

    @property
    def is_told(self) -> bool:
        """Ended badly as a user should see it: a code that says why, lines of our own and nothing else."""
        ours = all(line.startswith("swell: ") for line in self.err.strip().splitlines())
        return self.exit_code in (2, 3, 4, 5, 6) and bool(self.err.strip()) and ours and not self.has_traceback


class Running:
    """A command at work, in a process group of its own."""

    def __init__(self, pid: int, out: IO[bytes], err: IO[bytes]) -> None:
        self.pid, self._out, self._err = pid, out, err
        self._started = time.monotonic()
        self._status: int | None = None

    def is_over(self) -> bool:
        """Whether it has ended; one that was stopped is sent on, as a shell's `fg` does."""
        if self._status is None:
            found, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if found and os.WIFSTOPPED(status):
                time.sleep(0.2)
                os.killpg(self.pid, signal.SIGCONT)
            elif found:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is not None

    def send(self, number: int, to_all: bool = False) -> None:
        """To the process, or to all of its group, as a terminal does with Ctrl-C."""
        if not self.is_over():
            (os.killpg if to_all else os.kill)(self.pid, number)

    def ended(self, patience: float = PATIENCE) -> Ended:
        until, code = time.monotonic() + patience, None
        while not self.is_over():
            if time.monotonic() > until:
                os.killpg(self.pid, signal.SIGKILL)
                code = HUNG
            time.sleep(0.005)
        seconds = time.monotonic() - self._started
        assert self._status is not None
        return Ended(self._status if code is None else code, _text(self._out), _text(self._err), seconds)

    def left_behind(self, patience: float = 10.0) -> list[int]:
        """Processes of its group that are still there some time after its end; they are ended here."""
        until = time.monotonic() + patience
        while (members := _group(self.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return members


def start(arguments: Sequence[Any], cwd: Path, **environment: str) -> Running:
    """`python -m swell` with these arguments."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  # a pipe could fill up
    process = subprocess.Popen(
        [sys.executable, "-m", "swell", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        process_group=0,
    )
    process.returncode = 0  # it is waited for by its id
    return Running(process.pid, out, err)


def forked(
    arguments: Sequence[Any], cwd: Path, before: Callable[[], None] = lambda: None, **environment: str
) -> Running:
    """The same function that `swell` calls, in a fork of this process: three seconds of imports are saved."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _become_swell([str(word) for word in arguments], cwd, before, environment, out, err)
    return Running(pid, out, err)


def _become_swell(
    arguments: list[str],
    cwd: Path,
    before: Callable[[], None],
    environment: Mapping[str, str],
    out: IO[bytes],
    err: IO[bytes],
) -> None:
    code = 1
    try:
        os.chdir(cwd)
        os.environ.update(environment)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.argv = ["swell", *arguments]
        from swell.cli import main

        before()
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as the interpreter would
        traceback.print_exc()
    finally:
        for process in multiprocessing.active_children():
            process.terminate()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _group(leader: int) -> list[int]:
    """Processes of a group that are not zombies, by Linux's own book-keeping."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != leader:
            with contextlib.suppress(OSError, IndexError):
                state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) == leader and state != "Z":
                    members.append(int(entry.name))
    return members


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    text = file.read().decode(errors="replace")
    file.close()
    return text
