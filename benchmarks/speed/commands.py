"""Whole commands, timed from outside: other projects', and our own."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes import typical_iteration
from benchmarks.study import read_metrics

from .sides import Block
from .turns import SideFailedError
from .workloads import Workload

SWELL = Path(sys.executable).parent / "swell"
KIBIBYTE, GIGABYTE = 1024, 1e9
ITERATIONS = 150
"""Of a whole run that is timed by its usual one."""
ONE_PROCESS = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "-m", "swell")
"""`swell` as the only process of torchrun."""


class Beside:
    """Another project's training, one whole run a block; see `told` for what it has to print.

    Where it also tells how long the whole command took and how many env steps it made, our own command of that length
    follows, and its time is told too.
    """

    pace = 1.0

    def __init__(self, workload: Workload, label: str, command: str) -> None:
        self.label = label
        self._workload = workload
        self._command = shlex.split(command)
        self._has_warmed_up = False

    def block(self, seconds: float) -> Block:
        """Takes as long as the command does, whatever `seconds` says."""
        try:
            done = subprocess.run(self._command, stdout=subprocess.PIPE, text=True, check=False)
        except OSError as error:
            raise SideFailedError(f"{self.label}: {error}") from error
        numbers = told(done.stdout)
        if done.returncode != 0 or "steps_per_second" not in numbers:
            why = f"exit code {done.returncode}, last words: {done.stdout[-300:].strip() or 'none'}"
            raise SideFailedError(f"{self.label} must end well and print `steps_per_second: X`; {why}")
        if "wall_seconds" in numbers and "env_steps" in numbers:
            numbers["our_wall_seconds"] = self._our_seconds(int(numbers["env_steps"]))
        return Block(numbers["steps_per_second"], 1.0, numbers)

    def _our_seconds(self, steps: int) -> float:
        """Our whole command from its second run on: the first on a machine compiles kernels, and keeps them."""
        if not self._has_warmed_up:
            config = self._workload.config()
            train_seconds(self._workload, 2 * config.num_envs * config.horizon)
            self._has_warmed_up = True
        return train_seconds(self._workload, steps)

    def close(self) -> None: ...


class WholeRun:
    """Our whole command, one run a block, by the name under which it is started; its rate is that of its usual
    iteration, without start-up."""

    pace = 1.0

    def __init__(self, workload: Workload, label: str, launched_by: Sequence[str] = (str(SWELL),)) -> None:
        self.label = label
        self._workload = workload
        self._launched_by = launched_by

    def block(self, seconds: float) -> Block:
        """Takes as long as ITERATIONS do, whatever `seconds` says."""
        config = self._workload.config()
        _, *words = train_command(self._workload, ITERATIONS * config.num_envs * config.horizon)
        with tempfile.TemporaryDirectory() as directory:
            run_seconds([*self._launched_by, *words, "--out", f"{directory}/run"])
            usual = typical_iteration(read_metrics(f"{directory}/run"))
        return Block(usual["batch"], usual["seconds"])

    def close(self) -> None: ...


def told(output: str) -> dict[str, float]:
    """The last of each line `steps_per_second: X`, `wall_seconds: X` (of the whole command) and `env_steps: N`."""
    lines = re.findall(r"^(steps_per_second|wall_seconds|env_steps): *([\d.eE+]+) *$", output, flags=re.MULTILINE)
    return {name: float(value) for name, value in lines}


def train_command(workload: Workload, steps: int, **changes: Any) -> list[str]:
    """`swell train` with the options of a workload."""
    words = [str(SWELL), "train", workload.env, "--steps", str(steps), "--evaluation-episodes", "0", "--quiet"]
    for name, value in {**workload.options, **changes}.items():
        if name != "total_env_steps":
            words += _flag(name.replace("_", "-"), value)
    return words


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]


def train_seconds(workload: Workload, steps: int) -> float:
    """How long our whole command takes, from the shell's point of view."""
    with tempfile.TemporaryDirectory() as directory:
        return run_seconds([*train_command(workload, steps), "--out", f"{directory}/run"])


def run_seconds(command: list[str], expected_exit_code: int = 0) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    _require_exit_code(command, done.returncode, expected_exit_code, done.stderr)
    return seconds


def peak_memory(workload: Workload, steps: int, **changes: Any) -> float:
    """The most gigabytes that our whole command had in memory at a time."""
    with tempfile.TemporaryDirectory() as directory:
        command = [*train_command(workload, steps, **changes), "--out", f"{directory}/run"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        _require_exit_code(command, process.returncode, 0, "")
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else KIBIBYTE) / GIGABYTE


def _require_exit_code(command: list[str], found: int, expected: int, words: str) -> None:
    if found != expected:
        name = shlex.join(["swell", *command[1:]])
        raise SideFailedError(f"`{name}` ended with exit code {found}, expected {expected}; {words[-300:].strip()}")
