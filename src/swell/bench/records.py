"""Run directories as a report needs them: found, read whatever state they are in, and scored.

Nothing here raises because of what a run left behind: half a log, no summary or a config that is not JSON make a record
that says so. Files are never read through a symbolic link, because a run may come from somebody else.
"""

import json
import math
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from swell.bench.reference_scores import normalization_name, normalized
from swell.errors import ConfigError, SwellError
from swell.metrics import PHASES
from swell.run_directory import LOCK_NAME, plain_name, read_json

Array = NDArray[np.float64]
Row = dict[str, Any]
Status = Literal["done", "diverged", "failed", "interrupted", "running", "unfinished", "unreadable"]
ScoreField = Literal["evaluation_return", "final_return"]
Scores = dict[str, list[float]]
"""Env -> the scores of its finished runs."""

MAX_POINTS = 400
"""Most points of a log that are kept; more than a plot can show."""
SUMMARY_STATES: tuple[Status, ...] = ("done", "diverged", "failed", "interrupted")
NO_POINTS: Array = np.zeros(0)


@dataclass(frozen=True)
class RunLog:
    """The curves of a run; the first five arrays are of one length and NaN where a row had no such number."""

    env_steps: Array = field(default_factory=lambda: NO_POINTS)
    wall_seconds: Array = field(default_factory=lambda: NO_POINTS)
    gradient_steps: Array = field(default_factory=lambda: NO_POINTS)
    episode_return: Array = field(default_factory=lambda: NO_POINTS)
    horizon: Array = field(default_factory=lambda: NO_POINTS)
    """As planned: the very last rollout of a run is cut to the run's total."""
    reading_env_steps: Array = field(default_factory=lambda: NO_POINTS)
    readings: Array = field(default_factory=lambda: NO_POINTS)
    evaluation_env_steps: Array = field(default_factory=lambda: NO_POINTS)
    evaluation_returns: Array = field(default_factory=lambda: NO_POINTS)
    signal: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Phase -> seconds, over the whole run."""


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
    log: RunLog = field(default_factory=RunLog)
    console: Path | None = None
    """The log of its process, where a benchmark kept one."""
    last_words: str = ""
    """The last line of that log."""

    @property
    def finished(self) -> bool:
        return self.status == "done"

    @property
    def env_steps(self) -> float | None:
        return self._last("env_steps", self.log.env_steps)

    @property
    def gradient_steps(self) -> float | None:
        return self._last("gradient_steps", self.log.gradient_steps)

    @property
    def wall_seconds(self) -> float | None:
        return self._last("wall_seconds", self.log.wall_seconds)

    @property
    def steps_per_second(self) -> float | None:
        return finite_number(self.summary.get("steps_per_second"))

    @property
    def peak_memory_mb(self) -> float | None:
        return finite_number(self.summary.get("peak_memory_mb"))

    @property
    def scaler(self) -> str:
        return str(self.config.get("scaler", ""))

    @property
    def max_batch(self) -> float | None:
        """The largest batch that the config allows, in samples."""
        ramp = cast("list[Any]", self.config.get("ramp_horizons") or [None])
        longest = {"fixed": self.config.get("horizon"), "ramp": ramp[-1]}.get(
            self.scaler, self.config.get("max_horizon")
        )
        horizon, num_envs = finite_number(longest), finite_number(self.config.get("num_envs"))
        return horizon * num_envs if horizon and num_envs else None

    def score(self, score_field: ScoreField) -> float | None:
        return finite_number(self.summary.get(score_field))

    def _last(self, name: str, curve: Array) -> float | None:
        """The summary may be of an earlier session; the log is never behind."""
        known = [value for value in (finite_number(self.summary.get(name)), *curve[-1:]) if value is not None]
        return float(max(known, default=math.nan)) if known and math.isfinite(max(known)) else None


@dataclass(frozen=True)
class Scoring:
    """What counts as a score here, and every finished run's. Label -> env -> scores."""

    field: ScoreField
    scale: str
    """Name of the normalisation."""
    explanation: str
    """What 0 and 1 mean."""
    raw: Mapping[str, Scores]
    normalized: Mapping[str, Scores]

    @property
    def by_reference(self) -> bool:
        """Whether 0 and 1 are known from elsewhere, so that a score means something by itself."""
        return self.explanation == _REFERENCE_WORDS

    def rescaled(self, label: str, env: str, score: float) -> float:
        """The normalised score of a run with this raw one."""
        return self.normalized[label][env][self.raw[label][env].index(score)]

    @property
    def field_words(self) -> str:
        if self.field == "evaluation_return":
            return "greedy evaluation return"
        return "mean return of the last 100 training episodes"


def read_runs(paths: Sequence[Path]) -> list[RunRecord]:
    """Every run at or under the paths, sorted by env, label and seed; ConfigError where there is none."""
    records: dict[Path, RunRecord] = {}
    for root in paths:
        directories = find_runs(root)
        for directory in directories:
            records.setdefault(directory.resolve(), read_run(directory, root))
        for record in _never_started(root, list(records.values())):
            records.setdefault(record.path.resolve(), record)
    if not records:
        raise ConfigError(f"no run in {', '.join(map(str, paths))}: a run is a folder with a config.json")
    return sorted(records.values(), key=lambda record: (record.env, natural_key(record.label), record.seed or 0))


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
    console, last_words = _console_log(directory)
    described, problem = _read_object(directory / "config.json")
    config = described.get("config")
    if problem or not isinstance(config, dict):
        problem = problem or "config.json has no config in it"
        return RunRecord(directory, name, "", "", None, "unreadable", problem, console=console, last_words=last_words)
    summary, summary_problem = _read_object(directory / "summary.json")
    log, log_problem = _read_log(directory)
    options = cast("dict[str, Any]", config)
    return RunRecord(
        path=directory,
        name=name,
        env=clean_text(options.get("env", "unknown env")),
        label=clean_text(options.get("label") or default_label(options)),
        seed=_whole_number(options.get("seed")),
        status=_status(directory, summary, log),
        problem="; ".join(part for part in (summary_problem, log_problem) if part),
        config=options,
        network=clean_text(described.get("network", "")),
        device=clean_text(described.get("device", "")),
        machine=clean_text(described.get("machine", "")),
        threads=clean_text(described.get("threads", "")),
        versions=_texts(described.get("versions")),
        summary=summary,
        log=log,
        console=console,
        last_words=last_words,
    )


def default_label(config: Mapping[str, Any]) -> str:
    """What to call a run that has no label: `pqn adaptive`, `pqn fixed:32`."""
    scaler = str(config.get("scaler", "unknown scaler"))
    if scaler == "fixed":
        scaler = f"fixed:{config.get('horizon')}"
    elif scaler == "ramp" and config.get("ramp_from"):
        scaler = "shuffled" if config.get("ramp_order") == "shuffled" else "ramp-replay"
    return f"{config.get('algorithm', 'unknown algorithm')} {scaler}"


def score_runs(records: Sequence[RunRecord]) -> Scoring:
    """The scores of finished runs: greedy evaluations if all have one, else training returns; raw and normalised."""
    finished = [record for record in records if record.finished]
    evaluated = bool(finished) and all(record.score("evaluation_return") is not None for record in finished)
    score_field: ScoreField = "evaluation_return" if evaluated else "final_return"
    raw: dict[str, Scores] = {}
    for record in finished:
        score = record.score(score_field)
        if score is not None:
            raw.setdefault(record.label, {}).setdefault(record.env, []).append(score)
    names = {normalization_name(env) for scores in raw.values() for env in scores}
    if names and None not in names:
        scale = " and ".join(sorted(name for name in names if name))
        return Scoring(score_field, scale, _REFERENCE_WORDS, raw, _by_reference(raw))
    return Scoring(score_field, "min–max normalised", _RANGE_WORDS, raw, _by_range(raw))


_REFERENCE_WORDS = "0 and 1 are published reference scores (Atari: random play and a human; Procgen: its hard range)"
_RANGE_WORDS = "0 is the worst run of any variant on that env, 1 the best; other runs in the report would change it"


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sorts `fixed:8` before `fixed:16`."""
    parts = re.split(r"(\d{1,18})", text)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part]


def finite_number(value: object) -> float | None:
    """A number that one can count with, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of more than 308 digits
        return None


def clean_text(value: object) -> str:
    """As one line without what would disturb a page: control characters, text direction marks, broken encodings."""
    text = str(value).encode("utf-8", "replace").decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+", " ", text).strip()[:300]


def _by_reference(raw: Mapping[str, Scores]) -> dict[str, Scores]:
    return {
        label: {env: [normalized(env, score) or 0.0 for score in values] for env, values in scores.items()}
        for label, scores in raw.items()
    }


def _by_range(raw: Mapping[str, Scores]) -> dict[str, Scores]:
    pooled: Scores = {}
    for scores in raw.values():
        for env, values in scores.items():
            pooled.setdefault(env, []).extend(values)
    ranges = {env: (min(values), max(values)) for env, values in pooled.items()}
    return {
        label: {env: [_share(score, *ranges[env]) for score in values] for env, values in scores.items()}
        for label, scores in raw.items()
    }


def _share(score: float, low: float, high: float) -> float:
    return (score - low) / (high - low) if high > low else 0.5


def _status(directory: Path, summary: Mapping[str, Any], log: RunLog) -> Status:
    """The summary's word, unless somebody works on the run or has gone beyond that summary."""
    if _in_use(directory):
        return "running"
    status: Status | None = next((state for state in SUMMARY_STATES if state == summary.get("status")), None)
    noted = finite_number(summary.get("env_steps")) or 0.0
    if status is None or (log.env_steps.size and log.env_steps[-1] > noted):
        return "unfinished"
    return status


def _in_use(directory: Path) -> bool:
    """Whether the process named in the lock file lives; taking the lock to find out could stop a run from starting."""
    text = _head(directory / LOCK_NAME)
    match = re.fullmatch(r"process (\d{1,9}) on (.+)", text.strip())
    if match is None or match[2] != socket.gethostname():
        return False
    return Path(f"/proc/{match[1]}").exists() if Path("/proc/self").exists() else _answers(int(match[1]))


def _answers(process: int) -> bool:
    if os.name == "nt":
        return False  # there, signal 0 would end the process
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _own_file(path: Path) -> bool:
    """A plain file that is no link: a pipe would hang, and a link may lead anywhere."""
    try:
        return path.is_file() and not path.is_symlink()
    except OSError:
        return False


def _head(path: Path, size: int = 1000) -> str:
    if not _own_file(path):
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""


def _read_object(path: Path) -> tuple[Row, str]:
    """The object in a JSON file, or what is wrong with the file."""
    if not _own_file(path):
        return {}, "" if not os.path.lexists(path) else f"{path.name} is not a plain file"
    try:
        return read_json(path), ""
    except SwellError:
        return {}, f"{path.name} cannot be read as JSON"


def _read_log(directory: Path) -> tuple[RunLog, str]:
    lines, reading_lines = _thinned_lines(directory / "metrics.jsonl")
    rows, damaged = _parsed(lines)
    rows = _in_order(rows)
    reading_rows = _with_number(_in_order(_parsed(reading_lines)[0]), "reading")
    evaluation_lines, _ = _thinned_lines(directory / "evaluations.jsonl")
    evaluations = _with_number(_in_order(_parsed(evaluation_lines)[0]), "mean_return")
    log = RunLog(
        env_steps=_column(rows, "env_steps"),
        wall_seconds=_rising(_column(rows, "wall_seconds")),
        gradient_steps=_rising(_column(rows, "gradient_steps")),
        episode_return=_column(rows, "episode_return"),
        horizon=_planned_horizons(rows),
        reading_env_steps=_column(reading_rows, "env_steps"),
        readings=_column(reading_rows, "reading"),
        evaluation_env_steps=_column(evaluations, "env_steps"),
        evaluation_returns=_column(evaluations, "mean_return"),
        signal=clean_text((reading_rows or rows or [{}])[-1].get("signal", "")),
        seconds=_seconds(rows),
    )
    return log, f"{damaged} damaged lines in metrics.jsonl" if damaged else ""


def _thinned_lines(path: Path) -> tuple[list[bytes], list[bytes]]:
    """About evenly spaced lines of a log of any length, its last two among them; and the same of those with a reading.

    In one pass and bounded memory: whenever too many are kept, every second one goes.
    """
    kept, with_reading = _Thinned(), _Thinned()
    before = last = b""
    if _own_file(path):
        try:
            with open(path, "rb") as file:
                for line in file:
                    kept.add(line)
                    if b'"reading"' in line:
                        with_reading.add(line)
                    before, last = last, line
        except OSError:
            pass  # what was read until then
    ends = [line for line in (before, last) if line and line not in kept.lines[-2:]]
    return kept.lines + ends, with_reading.lines


class _Thinned:
    """Every n-th of the lines that come, n doubling as they get many."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._stride, self._seen = 1, 0

    def add(self, line: bytes) -> None:
        if self._seen % self._stride == 0:
            self.lines.append(line)
        self._seen += 1
        if len(self.lines) == MAX_POINTS - 2:
            self.lines = self.lines[::2]
            self._stride *= 2


def _parsed(lines: Iterable[bytes]) -> tuple[list[Row], int]:
    """The rows, and how many lines are none; half a line at the end is how a killed run stops, not damage."""
    rows: list[Row] = []
    damaged = 0
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(cast(Row, row))
        elif line.strip() and line.endswith(b"\n"):
            damaged += 1
    return rows, damaged


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows whose env steps increase; others cannot be drawn."""
    ordered: list[Row] = []
    latest = -math.inf
    for row in rows:
        env_steps = finite_number(row.get("env_steps"))
        if env_steps is not None and env_steps > latest:
            ordered.append(row)
            latest = env_steps
    return ordered


def _with_number(rows: Sequence[Row], name: str) -> list[Row]:
    return [row for row in rows if finite_number(row.get(name)) is not None]


def _column(rows: Sequence[Row], name: str) -> Array:
    numbers = (finite_number(row.get(name)) for row in rows)
    return np.array([math.nan if number is None else number for number in numbers], dtype=np.float64)


def _rising(values: Array) -> Array:
    """A clock never goes back."""
    return np.fmax.accumulate(values) if values.size else values


def _planned_horizons(rows: Sequence[Row]) -> Array:
    horizons = _column(rows, "horizon")
    planned = finite_number(rows[-2].get("next_horizon")) if len(rows) > 1 else None
    if planned is not None:
        horizons[-1] = planned
    return horizons


def _seconds(rows: Sequence[Row]) -> dict[str, float]:
    last = rows[-1] if rows else {}
    seconds = {phase: finite_number(last.get(f"seconds_{phase}")) for phase in PHASES}
    return {phase: value for phase, value in seconds.items() if value is not None}


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {clean_text(key): clean_text(entry) for key, entry in cast("dict[Any, Any]", value).items()}


def _relative_name(directory: Path, root: Path | None) -> str:
    if root is None or directory == root:
        return clean_text(directory.name or directory)
    return clean_text(directory.relative_to(root).as_posix())


def _console_log(directory: Path) -> tuple[Path | None, str]:
    """In a benchmark, `runs/<env>/<variant>/seed-1` has `logs/<env>_<variant>_seed-1.log`."""
    absolute = Path(os.path.abspath(directory))
    if len(absolute.parents) < 4:
        return None, ""
    bench, inside = absolute.parents[3], absolute.parts[-4:]
    log = bench / "logs" / f"{'_'.join(inside[1:])}.log"
    if inside[0] != "runs" or not _own_file(log):
        return None, ""
    return log, _last_line(log)


def _last_line(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((clean_text(line) for line in reversed(lines) if clean_text(line)), "")


def _never_started(bench: Path, known: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs of a benchmark that left a log but no run directory: they failed before there was anything to note."""
    logs = bench / "logs"
    if not logs.is_dir() or logs.is_symlink() or not (bench / "runs").is_dir():
        return []
    seen = {record.console.resolve() for record in known if record.console}
    envs = {plain_name(record.env): record.env for record in known}
    labels = {plain_name(record.label): record.label for record in known}
    records: list[RunRecord] = []
    for log in sorted(logs.glob("*.log")):
        if not _own_file(log) or log.resolve() in seen:
            continue
        env, label, seed = (log.stem.split("_", 1)[0], "_".join(log.stem.split("_")[1:-1]), log.stem.split("_")[-1])
        directory = bench / "runs" / env / label / seed
        records.append(
            RunRecord(
                path=directory,
                name=_relative_name(directory, bench),
                env=envs.get(env, clean_text(env)),
                label=labels.get(label, clean_text(label)),
                seed=_whole_number(int(seed[5:])) if re.fullmatch(r"seed-\d{1,10}", seed) else None,
                status="failed",
                problem="it has a log, but no run directory",
                console=log,
                last_words=_last_line(log),
            )
        )
    return records
