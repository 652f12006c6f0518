"""One run of a benchmark, trained in this process: begun, or continued from its newest checkpoint.

Whoever works on a run holds its claim, a lock beside the run directory that is taken before anything is looked at and
that the kernel drops when the process ends, however it ends. So two drivers may start the same run at once: one gets
the claim, the other ends with the code IN_USE and has touched nothing. The run's own lock is not enough for this,
because a run takes it only after building: a slow second worker could then begin a run that a fast first one has ended.

`python -m swell.bench.workers.process` reads a request on stdin, one line of JSON, and ends with Swell's exit codes.
With "watch_stdin" it lives as long as its driver: when the other end of stdin closes, because the driver was killed, it
saves and stops as after SIGTERM. A benchmark that was killed so does not go on in the background, and the next start
resumes each run where it stopped; until the worker is gone, the claim keeps the next start away from its run.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from swell.config.imports import find_own_modules
from swell.config.run_config import RunConfig, config_from_dict
from swell.errors import ConfigError, InUseError, SwellError
from swell.runs.run_directory import RunLock, storage_errors
from swell.runs.sealed import DamagedError, read_summary, write_sealed

IN_USE = 75
"""Exit code of a worker that found its run claimed by another: no failure (EX_TEMPFAIL of sysexits.h)."""
FINISHED = ("done", "diverged")
"""Statuses of a summary that are results: a run that diverged would only diverge again."""
ATTEMPT = "--- attempt"
"""How the header of each attempt begins in a run's log."""
CLAIM_SECONDS = 1.0
"""How long to try for a claim, because someone who only looks whether it is free holds it for a moment."""


class RunInUseError(InUseError):
    """Another process works on the run; no failure to a benchmark."""

    exit_code = IN_USE


@dataclass(frozen=True)
class Ending:
    """How an attempt at a run ended: its exit code, or minus the signal that killed it, and its last line."""

    code: int
    message: str = ""

    @property
    def died(self) -> bool:
        """Killed or told to stop from outside, so that another attempt may well end better."""
        return self.code < 0 or self.code in (128 + signal.SIGINT, 128 + signal.SIGTERM)


def claim_of(directory: Path) -> Path:
    """The folder whose lock is the claim on a run directory; beside it, because a new run wants an empty one."""
    return directory.with_name(f".{directory.name}.claim")


def carry_out(directory: Path, config: RunConfig) -> dict[str, Any]:
    """Trains the run to its end and returns its summary; a finished one is returned as it is.

    A directory that holds a run goes on as it was begun. RunInUseError if another process has it.
    """
    with _claim(directory):
        summary = finished_summary(directory)
        if summary is not None:
            return summary
        begun = (directory / "config.json").exists()
        what, now = "continued" if begun else "begun", time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"{ATTEMPT} {what} {now} by process {os.getpid()} on {socket.gethostname()}", flush=True)
        try:
            return _continue(directory, config) if begun else _begin(directory, config)
        except InUseError as error:  # someone resumed it by hand
            raise RunInUseError(*error.faults) from error


def attempt(directory: Path, config: RunConfig) -> Ending:
    """Carries out a run; whatever it raises becomes an ending, and what nobody expected leaves a traceback."""
    try:
        return Ending(0, str(carry_out(directory, config)["status"]))
    except SwellError as error:
        return Ending(error.exit_code, (str(error).splitlines() or [type(error).__name__])[-1])
    except KeyboardInterrupt:
        return Ending(128 + signal.SIGINT, "stopped at once")
    except Exception as error:  # an env of the user's may raise anything
        traceback.print_exc()
        return Ending(1, f"unexpected {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")


def finished_summary(directory: Path) -> dict[str, Any] | None:
    """The summary of a run that has a result, else None."""
    try:
        summary = read_summary(directory)
    except DamagedError:  # the run itself sets it aside
        return None
    return {**summary, "directory": str(directory)} if summary.get("status") in FINISHED else None


def main() -> None:
    """Carries out the run that a line on stdin asks for."""
    find_own_modules()
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]  # headers come in order
    try:
        request = cast("dict[str, Any]", json.loads(sys.stdin.readline()))
        directory, config = Path(request["directory"]), config_from_dict(request["config"])
        watches = bool(request.get("watch_stdin"))
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        print(f"swell: the request is not {{'directory': …, 'config': …}}: {error}", file=sys.stderr)
        sys.exit(ConfigError.exit_code)
    if watches:
        threading.Thread(target=_stop_when_stdin_ends, daemon=True).start()
    ending = attempt(directory, config)
    if ending.code not in (0, IN_USE):  # the log belongs to the one that has the claim
        print(f"swell: {ending.message}", file=sys.stderr, flush=True)
    sys.exit(ending.code)


@contextlib.contextmanager
def _claim(directory: Path) -> Generator[None]:
    with storage_errors("make run directory", directory):
        claim_of(directory).mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + CLAIM_SECONDS
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(RunLock(claim_of(directory)))
                break
            except InUseError as error:
                if time.monotonic() > deadline:
                    raise RunInUseError(*error.faults) from error
            time.sleep(0.05)
        yield


def _begin(directory: Path, config: RunConfig) -> dict[str, Any]:
    from swell.runs.start import run  # here, because it imports torch, and the claim must not wait for that

    with contextlib.suppress(FileNotFoundError):  # left by a worker that was killed while it wrote config.json
        (directory / ".config.json.tmp").unlink()
    return run(config, out=directory, quiet=True)


def _continue(directory: Path, config: RunConfig) -> dict[str, Any]:
    from swell.runs.start import resume
    from swell.runs.stored_run import sound_description
    from swell.runs.trust import code_named_by

    described = sound_description(directory, "env", print, restore=True)
    names_what_was_asked_for = code_named_by(described["config"]) == code_named_by(config.to_dict())
    if config.ramp_from and described["config"].get("ramp_from") != config.ramp_from:
        # The benchmark was moved; a run without a checkpoint reads the horizons to repeat once more.
        described["config"]["ramp_from"] = config.ramp_from
        write_sealed(directory / "config.json", described)
    return resume(directory, quiet=True, trust=names_what_was_asked_for)


def _stop_when_stdin_ends() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock a thread must not hold when Python shuts down
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
