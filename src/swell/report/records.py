"""Run directories as a report needs them: found, and read whatever state they are in.

Nothing here raises because of what a run left behind: half a log, no summary or a config that is not JSON make a record
that says so. Files are never read through a symbolic link, because a run may come from somebody else.
"""

import math
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from swell.errors import ConfigError
from swell.report.run_files import (
    Array,
    RunLog,
    clean_text,
    clean_texts,
    finite_number,
    is_plain_file,
    last_line,
    read_head,
    read_log,
    read_object,
    whole_number,
)
from swell.report.words import ENV_RUN, KINDS, Kind, Words, common_words, kind_named
from swell.runs.run_directory import LOCK_NAME, plain_name

Status = Literal["done", "diverged", "failed", "interrupted", "running", "unfinished", "unreadable"]
ScoreField = Literal["evaluation_score", "training_score"]
USUAL_BACKENDS = ("auto", "gymnasium")
SUMMARY_STATES: tuple[Status, ...] = ("done", "diverged", "failed", "interrupted")


@dataclass(frozen=True)
class RunRecord:
    """One run as it was found. What is not known is None or empty."""

    path: Path
    name: str
    """The path from the folder that was reported on."""
    env: str
    label: str
    seed: int | None
    status: Status
    problem: str = ""
    """What is wrong with its files, in words."""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    network: str = ""
    device: str = ""
    machine: str = ""
    threads: str = ""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    summary: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Under the reader's names, as `kind` translates them."""
    log: RunLog = field(default_factory=RunLog)
    console: Path | None = None
    """The log of its process, where a benchmark kept one."""
    last_log_line: str = ""
    kind: Kind = ENV_RUN

    @property
    def finished(self) -> bool:
        return self.status == "done"

    @property
    def clock(self) -> float | None:
        """How long it trained: env steps or completions."""
        return self._last("clock", self.log.clock)

    @property
    def gradient_steps(self) -> float | None:
        return self._last("gradient_steps", self.log.gradient_steps)

    @property
    def wall_seconds(self) -> float | None:
        return self._last("wall_seconds", self.log.wall_seconds)

    @property
    def speed(self) -> float | None:
        """On its clock, per second."""
        return finite_number(self.summary.get("speed"))

    @property
    def peak_memory_mb(self) -> float | None:
        return finite_number(self.summary.get("peak_memory_mb"))

    @property
    def scaler(self) -> str:
        return str(self.config.get("scaler", ""))

    @property
    def max_batch(self) -> float | None:
        """The largest batch that the config allows, in samples."""
        return finite_number(self.kind.largest_batch(self.config))

    def score(self, score_field: ScoreField) -> float | None:
        return finite_number(self.summary.get(score_field))

    def _last(self, name: str, curve: Array) -> float | None:
        """The summary may be of an earlier session; the log is never behind."""
        known = [value for value in (finite_number(self.summary.get(name)), *curve[-1:]) if value is not None]
        return float(max(known)) if known and math.isfinite(max(known)) else None


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """Every run at or under the paths, sorted by env, label and seed; ConfigError where there is none."""
    records: dict[Path, RunRecord] = {}
    for root in paths:
        for directory in find_runs(root):
            records.setdefault(directory.resolve(), read_run(directory, root))
        for record in _never_started(root, list(records.values())):
            records.setdefault(record.path.resolve(), record)
    if not records:
        raise ConfigError(f"no run in {', '.join(map(str, paths))}: a run is a folder with a config.json")
    return sorted(records.values(), key=lambda record: (record.env, natural_key(record.label), record.seed or 0))


def kinds_of(records: Iterable[RunRecord]) -> list[Kind]:
    """The kinds of the runs that could be read."""
    present = {record.kind for record in records if record.status != "unreadable"}
    return [kind for kind in KINDS if kind in present]


def words_for(records: Iterable[RunRecord]) -> Words:
    """The words for sentences about all these runs."""
    return common_words(kinds_of(records))


def find_runs(root: Path) -> list[Path]:
    """Run directories at or below `root`; links inside it are not followed."""
    if not root.is_dir():
        raise ConfigError(f"{str(root)!r} is no folder; give run directories or folders that hold them")
    found: list[Path] = []
    for folder, inner, files in os.walk(root, followlinks=False):
        if "config.json" in files:
            found.append(Path(folder))
            inner.clear()  # a run holds no other runs
        inner.sort()
    return found


def read_run(directory: Path, root: Path | None = None) -> RunRecord:
    """One run directory, in whatever state it is."""
    name = _relative_name(directory, root)
    console = _console_log(directory)
    last_log_line = last_line(console) if console else ""
    described, problem = read_object(directory / "config.json")
    config = described.get("config")
    if problem or not isinstance(config, dict):
        problem = problem or "config.json has no config in it"
        return RunRecord(
            directory, name, "", "", None, "unreadable", problem, console=console, last_log_line=last_log_line
        )
    kind = kind_named(described.get("kind"))
    summary, summary_problem = read_object(directory / "summary.json")
    summary = kind.translated(summary)
    log, log_problem = read_log(directory, kind)
    options = cast("dict[str, Any]", config)
    return RunRecord(
        path=directory,
        name=name,
        env=clean_text(options.get("env", f"unknown {kind.words.place}")),
        label=clean_text(options.get("label") or default_label(options, kind)),
        seed=whole_number(options.get("seed")),
        status=_status(directory, summary, log),
        problem="; ".join(part for part in (summary_problem, log_problem) if part),
        config=options,
        network=clean_text(described.get("network", "")),
        device=clean_text(described.get("device", "")),
        machine=clean_text(described.get("machine", "")),
        threads=clean_text(described.get("threads", "")),
        versions=clean_texts(described.get("versions")),
        summary=summary,
        log=log,
        console=console,
        last_log_line=last_log_line,
        kind=kind,
    )


def default_label(config: Mapping[str, Any], kind: Kind = ENV_RUN) -> str:
    """What to call a run that has no label: `pqn adaptive`, `pqn fixed:32`, `pqn adaptive compiled`.

    Scores of another implementation of the env do not belong into one mean with those of the usual one.
    """
    scaler = str(config.get("scaler", "unknown scaler"))
    if scaler == "fixed":
        scaler = f"fixed:{config.get(kind.fixed_batch)}"
    elif scaler == "ramp" and config.get("ramp_from"):
        scaler = "shuffled" if config.get("ramp_order") == "shuffled" else "ramp-replay"
    backend = str(config.get("backend", "auto"))
    named = "" if backend in USUAL_BACKENDS else f" {backend}"
    return f"{config.get('algorithm', 'unknown algorithm')} {scaler}{named}"


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sorts `fixed:8` before `fixed:16`."""
    parts = re.split(r"(\d{1,18})", text)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part]


def _status(directory: Path, summary: Mapping[str, Any], log: RunLog) -> Status:
    """The summary's word, unless somebody works on the run or has gone beyond that summary."""
    if _in_use(directory):
        return "running"
    status: Status | None = next((state for state in SUMMARY_STATES if state == summary.get("status")), None)
    noted = finite_number(summary.get("clock")) or 0.0
    if status is None or (log.clock.size and log.clock[-1] > noted):
        return "unfinished"
    return status


def _in_use(directory: Path) -> bool:
    """Whether the process named in the lock file lives; taking the lock to find out could stop a run from starting."""
    text = read_head(directory / LOCK_NAME)
    match = re.fullmatch(r"process (\d{1,9}) on (.+)", text.strip())
    if match is None or match[2] != socket.gethostname():
        return False
    if Path("/proc/self").exists():
        return Path(f"/proc/{match[1]}").exists()
    if os.name == "nt":
        return False  # there, signal 0 would end the process
    try:
        os.kill(int(match[1]), 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _relative_name(directory: Path, root: Path | None) -> str:
    if root is None or directory == root:
        return clean_text(directory.name or directory)
    return clean_text(directory.relative_to(root).as_posix())


def _console_log(directory: Path) -> Path | None:
    """In a benchmark, `runs/<env>/<variant>/seed-1` has `logs/<env>_<variant>_seed-1.log`."""
    absolute = Path(os.path.abspath(directory))
    if len(absolute.parents) < 4:
        return None
    bench, inside = absolute.parents[3], absolute.parts[-4:]
    log = bench / "logs" / f"{'_'.join(inside[1:])}.log"
    return log if inside[0] == "runs" and is_plain_file(log) else None


def _never_started(bench: Path, known: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs of a benchmark that left a log but no run directory: they failed before there was anything to note."""
    logs = bench / "logs"
    if not logs.is_dir() or logs.is_symlink() or not (bench / "runs").is_dir():
        return []
    seen = {record.console.resolve() for record in known if record.console}
    envs = {plain_name(record.env): record.env for record in known}
    labels = {plain_name(record.label): record.label for record in known}
    kinds = {plain_name(record.env): record.kind for record in known}
    usual = next(iter(kinds_of(known)), ENV_RUN)
    records: list[RunRecord] = []
    for log in sorted(logs.glob("*.log")):
        if not is_plain_file(log) or log.resolve() in seen:
            continue
        parts = log.stem.split("_")
        env, label, seed = parts[0], "_".join(parts[1:-1]), parts[-1]
        directory = bench / "runs" / env / label / seed
        records.append(
            RunRecord(
                path=directory,
                name=_relative_name(directory, bench),
                env=envs.get(env, clean_text(env)),
                label=labels.get(label, clean_text(label)),
                seed=whole_number(int(seed[5:])) if re.fullmatch(r"seed-\d{1,10}", seed) else None,
                status="failed",
                problem="it has a log, but no run directory",
                console=log,
                last_log_line=last_line(log),
                kind=kinds.get(env, usual),
            )
        )
    return records
