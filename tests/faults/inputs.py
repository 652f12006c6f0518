"""Wrong words on the command line and wrong files in a directory: `inputs.txt`, each line a command and what is due."""

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.cases import SHORT_PQN
from tests.faults.commands import HUNG, Ended, forked
from tests.faults.flips import resumed
from tests.faults.record import Kind, Row
from tests.faults.undisturbed import Workshop

TABLE = Path(__file__).with_name("inputs.txt")
PATIENCE = 90.0
INTERRUPTED = "beside an interrupted run whose "
CANARY = "was-imported"
MEMORY = 12 * 2**30
"""Bytes of address space that a command gets, so that one which believes a wrong size does not fill the machine."""
AS_A_FUNCTION = 'swell() {{ {python} -m swell "$@"; }}; export -f swell; {command}'


@dataclass(frozen=True)
class Input:
    codes: tuple[int, ...]
    word: str
    command: str
    given: str

    @property
    def is_accepted(self) -> bool:
        """Whether it may go well."""
        return 0 in self.codes


def kind(workshop: Workshop) -> Kind:
    table = read_table()
    return Kind(len(table), lambda number: attempt(workshop, number, table[number]))


def read_table() -> list[Input]:
    table, given = [], ""
    for line in TABLE.read_text().splitlines():
        if line.startswith("=="):
            given = line.removeprefix("==").strip()
        elif line and not line.startswith("#"):
            codes, word, command = line.split(None, 2)
            table.append(Input(tuple(map(int, codes.split("|"))), "" if word == "-" else word, command, given))
    return table


def attempt(workshop: Workshop, number: int, given: Input) -> Row:
    directory = workshop.fresh("input")
    prepare(workshop, given.given, directory)
    before = sorted(directory.rglob("*"))
    ended = typed(given.command, directory)
    left = added(directory, before)
    if ended.exit_code == 0 and given.is_accepted and given.command.startswith("swell resume"):
        words, held = resumed(workshop, directory / "run", given.given.removeprefix(INTERRUPTED).split()[0], ended)
    else:
        words, held = judged(given, ended, left)
    if CANARY in left:
        words, held = "ran code that the directory brought", False
    return Row(number, given.given, given.command, ended.exit_code, ended.line, words, held)


def judged(given: Input, ended: Ended, left: list[str]) -> tuple[str, bool]:
    if ended.exit_code == HUNG:
        return "hung", False
    if ended.has_traceback or "Traceback" in ended.err:
        return "a traceback, or unexpected", False
    if ended.exit_code not in given.codes:
        return f"exit code {ended.exit_code}, not {' or '.join(map(str, given.codes))}", False
    if ended.exit_code in (0, 141):
        return "went on", True
    if given.word.lower() not in plain(ended.err).lower():
        return f"the line does not say {given.word}", False
    if left and given.given == "in an empty directory":
        return f"left {', '.join(left)}", False
    return "refused in a line" if len(ended.err.strip().splitlines()) == 1 else "refused in lines", True


def plain(text: str) -> str:
    """Options are spelled in two ways: `min_horizon` and `--min-horizon`."""
    return text + text.replace("-", "_")


def added(directory: Path, before: list[Path]) -> list[str]:
    new = [path for path in directory.rglob("*") if path not in before]
    return [str(path.relative_to(directory)) for path in new if path.name != "runs"]


def typed(command: str, directory: Path) -> Ended:
    if command.startswith("swell") and not re.search(r"[>|<]", command.replace('"<script>alert(1)</script>"', "")):
        return forked(shlex.split(command)[1:], directory, limit_memory).ended(PATIENCE)
    script = AS_A_FUNCTION.format(python=shlex.quote(sys.executable), command=command)
    started = time.monotonic()
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            preexec_fn=limit_memory,
        )
    except subprocess.TimeoutExpired:
        return Ended(HUNG, "", "", PATIENCE)
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - started)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def prepare(workshop: Workshop, given: str, directory: Path) -> None:
    if given == "in an empty directory" or given == "in an odd shell":
        return
    if given.startswith("in a directory that holds other things"):
        (directory / "notes.txt").write_text("buy milk\n")
        (directory / "folder").mkdir()
        (directory / "bad.toml").write_text('recipe = "classic"\nlearning_rate = "fast"\n')
        return
    if "helpers.py" in given:
        made_elsewhere(directory)
        return
    is_finished = given.startswith("beside a finished run")
    shutil.copytree(workshop.whole(SHORT_PQN) if is_finished else workshop.interrupted(SHORT_PQN), directory / "run")
    if is_finished:
        return
    name, _, what = given.removeprefix(INTERRUPTED).partition(" ")
    if name in ("manifests", "tensors", "checkpoints") and what != "is missing" and what != "is a file":
        file = {"manifests": "MANIFEST.json", "tensors": "state.safetensors", "checkpoints": "state.json"}[name]
        for path in sorted((directory / "run" / "checkpoints").glob(f"step-*/{file}")):
            DAMAGES[what](path)
    else:
        DAMAGES[what](directory / "run" / name)


def made_elsewhere(directory: Path) -> None:
    """A run of an env that a module of its maker registers, and a module of that name that somebody else put there."""
    module = directory / "helpers.py"
    module.write_text(
        "import gymnasium\ngymnasium.register('Evil-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
    )
    few = ("--steps", "500", "--num-envs", "4", "--evaluation-episodes", "1", "--out", "run")
    ended = forked(["train", "helpers:Evil-v0", *few], directory).ended()
    assert ended.exit_code == 0, ended.err
    (directory / "run" / "summary.json").unlink()  # so that there is something to resume
    module.write_text(f"open({str(directory / CANARY)!r}, 'w').close()\n")


def replaced_by(data: bytes) -> Callable[[Path], None]:
    return lambda path: (emptied(path), path.write_bytes(data))[0]


def emptied(path: Path) -> None:
    """Nothing is there any more."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def made_directory(path: Path) -> None:
    emptied(path)
    path.mkdir()


def made_pipe(path: Path) -> None:
    emptied(path)
    os.mkfifo(path)


def made_huge(path: Path) -> None:
    """Sparse: it takes no room on the disk."""
    emptied(path)
    with open(path, "wb") as file:
        file.truncate(20 * 10**9)


def edited(**changes: object) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        described = json.loads(path.read_text())
        described["config"].update(changes)
        path.write_text(json.dumps(described, indent=2))

    return edit


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "is `{}`": replaced_by(b"{}"),
    "is `[]`": replaced_by(b"[]"),
    "is empty": replaced_by(b""),
    "is not text": replaced_by(bytes(range(256))),
    "is missing": emptied,
    "is a directory": made_directory,
    "is a file": replaced_by(b"no directory"),
    "is a pipe that nobody writes into": made_pipe,
    "are pipes that nobody writes into": made_pipe,
    "has 20 GB of zeros": made_huge,
    "have 20 GB of zeros": made_huge,
    "is a hundred thousand brackets": replaced_by(b"[" * 100_000),
    "names another env": edited(env="Acrobot-v1"),
    "has an unknown option": edited(learning_rat=1.0),
    "has num_envs as text": edited(num_envs="eight"),
    "are all damaged": damaged,
}
