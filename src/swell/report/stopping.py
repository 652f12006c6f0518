"""What runs had come to at the end, after a share of their length, or after the same time of training.

    records = read_runs([Path("bench")])
    found = regrets(scores_at_the_end(records), fixed=["fixed:8", "fixed:16", "fixed:64"])
    found.mean("adaptive"), found.of("adaptive", "MinAtar/Breakout-v1")

At the end the score is that of the report: the final evaluation if every run has one. Before the end there is none,
so all runs on an env are read from the same kind of curve: their evaluations where each run has many of them, else the
mean return of the last training episodes. Only finished runs count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from swell.report.records import RunRecord, ScoreField
from swell.report.run_files import Array
from swell.report.scoring import score_runs

ScoresByEnv = dict[str, dict[str, list[float]]]
"""Env -> variant -> the scores of its runs."""
ENOUGH_EVALUATIONS = 20
"""So many make a curve: no more than a twentieth of a run lies between two of them."""


@dataclass(frozen=True)
class Stopped:
    """Runs read at some moment of their training."""

    scores: ScoresByEnv
    """Without the envs on which some run had no score by then."""
    evaluated: frozenset[str]
    """The envs whose scores are evaluations; the others' are training returns."""
    seconds: Mapping[str, float]
    """Env -> the time of training after which its runs are read, where it is the time that they share."""


@dataclass(frozen=True)
class Cost:
    """What a run takes; NaN where it is not known."""

    seconds: float
    """Of training, as in `stopped_after_equal_time`."""
    gradient_steps: float


def scores_at_the_end(records: Sequence[RunRecord], score_field: ScoreField | None = None) -> ScoresByEnv:
    """The final scores of finished runs; without a field, that which a report on these runs would choose."""
    chosen = score_field or score_runs(records).field
    scores: ScoresByEnv = {}
    for env, runs in _finished(records).items():
        for run in runs:
            score = run.score(chosen)
            if score is not None:
                scores.setdefault(env, {}).setdefault(run.label, []).append(score)
    return scores


def stopped_after_share(records: Sequence[RunRecord], share: float) -> Stopped:
    """Runs as they were after a share of their length on the clock."""

    def moment(run: RunRecord) -> float:
        return share * (run.clock or 0.0)

    return _stopped({env: [(run, moment(run)) for run in runs] for env, runs in _finished(records).items()}, {})


def stopped_after_equal_time(records: Sequence[RunRecord]) -> Stopped:
    """Runs as they were when the run that trained for the shortest time was done, env by env.

    That time is without evaluations and checkpoints, and with what measuring a signal took.
    """
    runs_of = _finished(records)
    budgets = {env: min(_training_seconds(run) for run in runs) for env, runs in runs_of.items()}
    known = {env: seconds for env, seconds in budgets.items() if np.isfinite(seconds)}
    moments = {
        env: [(run, _clock_after(run, seconds)) for run in runs_of[env]] for env, seconds in sorted(known.items())
    }
    return _stopped(moments, known)


def costs_of(records: Sequence[RunRecord], env: str) -> dict[str, Cost]:
    """Variant -> what its finished runs on an env took, in the mean."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for run in _finished(records).get(env, []):
        rows.setdefault(run.label, []).append((_training_seconds(run), run.gradient_steps or np.nan))
    return {label: Cost(*map(float, np.mean(values, axis=0))) for label, values in rows.items()}


def _stopped(moments: Mapping[str, Sequence[tuple[RunRecord, float]]], seconds: Mapping[str, float]) -> Stopped:
    scores: ScoresByEnv = {}
    evaluated: set[str] = set()
    for env, runs in moments.items():
        by_evaluations = all(run.log.evaluation_clock.size >= ENOUGH_EVALUATIONS for run, _ in runs)
        values = [(run.label, _score_at(run, clock, by_evaluations)) for run, clock in runs]
        if any(np.isnan(value) for _, value in values):
            continue
        if by_evaluations:
            evaluated.add(env)
        for label, value in values:
            scores.setdefault(env, {}).setdefault(label, []).append(value)
    return Stopped(scores, frozenset(evaluated), seconds)


def _score_at(run: RunRecord, clock: float, by_evaluations: bool) -> float:
    """Interpolated like the curves of the report; NaN before the first score."""
    log = run.log
    x, y = (log.evaluation_clock, log.evaluation_scores) if by_evaluations else (log.clock, log.score)
    return _interpolated(clock, x, y)


def _clock_after(run: RunRecord, seconds: float) -> float:
    """How far the run was after so much training."""
    return _interpolated(seconds, np.append(0.0, run.log.training_seconds), np.append(0.0, run.log.clock))


def _training_seconds(run: RunRecord) -> float:
    spent = run.log.training_seconds
    return float(spent[-1]) if spent.size else np.nan


def _interpolated(at: float, x: Array, y: Array) -> float:
    known = np.isfinite(x) & np.isfinite(y)
    return float(np.interp(at, x[known], y[known], left=np.nan)) if known.any() else np.nan


def _finished(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    runs: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.finished:
            runs.setdefault(record.env, []).append(record)
    return runs
