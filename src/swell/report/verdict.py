"""From scores to sentences: who beats whom, how sure that is, and what else could explain it. Pure functions.

A claim needs an interval that excludes one half, and enough runs that a clean sweep would not be chance.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard

import numpy as np

from swell.errors import ConfigError
from swell.report.cautions import counted, find_cautions, listed
from swell.report.records import RunRecord, kinds_of, natural_key
from swell.report.scoring import Scores, Scoring
from swell.report.stats import Interval, bootstrap, probability_of_improvement

Outcome = Literal["beats", "loses", "undecided", "too few", "apart"]

MATERIAL = 0.05
"""Two sides that differ by more than this share in gradient steps or in data do not differ in the batch alone."""
CHANCE = 0.05
"""Largest chance of a clean sweep between equals at which anything may be claimed."""


@dataclass(frozen=True)
class Finding:
    """The main variant against one rival."""

    rival: str
    outcome: Outcome
    sentence: str
    notes: tuple[str, ...]
    probability: Interval | None
    """Of improvement over the rival; None without an env that both finished."""


@dataclass(frozen=True)
class Verdict:
    """What the page says first."""

    headline: str
    basis: str
    """What the sentences rest on."""
    findings: tuple[Finding, ...]
    cautions: tuple[str, ...]


def variant_labels(records: Sequence[RunRecord], about: str | None = None) -> list[str]:
    """The variants in the order of the page: the main one, then the others by name."""
    labels = sorted({record.label for record in records if record.label}, key=natural_key)
    if about is not None and about not in labels:
        raise ConfigError(f"no run has the label {about!r}; there are {', '.join(map(repr, labels)) or 'none'}")
    first = about or _main_variant(records, labels)
    return [first, *(label for label in labels if label != first)] if labels else []


def judge(records: Sequence[RunRecord], scoring: Scoring, about: str | None = None) -> Verdict:
    """Sentences about the main variant and each rival, and what to be careful about."""
    labels = variant_labels(records, about)
    cautions = find_cautions(records, scoring, labels)
    if len(labels) < 2:
        return Verdict(_lone_headline(records, scoring, labels), "", (), tuple(cautions))
    findings = tuple(compare(records, scoring, labels[0], rival) for rival in labels[1:])
    if len(findings) > 1:
        cautions.append(
            f"Each interval is a 95 % interval for its own pair. They are not corrected for the {len(findings)} "
            "comparisons made here: the more there are, the likelier one of them errs."
        )
    return Verdict(
        _headline(labels[0], findings, scoring.words.place), _basis(records, scoring), findings, tuple(cautions)
    )


def compare(records: Sequence[RunRecord], scoring: Scoring, label: str, rival: str) -> Finding:
    """One sentence about two variants, with notes on what differs between them besides the batch."""
    ours, theirs = scoring.normalized.get(label, {}), scoring.normalized.get(rival, {})
    probability, place = improvement(ours, theirs), scoring.words.place
    if probability is None:
        return Finding(rival, "apart", f"{label} and {rival} have no {place} that both finished.", (), None)
    outcome = _outcome(probability, ours, theirs)
    notes = _effort_notes(records, label, rival)
    shared, all_envs = ours.keys() & theirs.keys(), ours.keys() | theirs.keys()
    if shared != all_envs:
        notes.insert(0, f"Compared on the {counted(len(shared), place)} that both finished, of {len(all_envs)}.")
    return Finding(rival, outcome, _sentence(outcome, label, rival, probability), tuple(notes), probability)


def improvement(ours: Scores, theirs: Scores) -> Interval | None:
    """Probability that a run of ours is better than one of theirs on the same env; None without a shared env."""
    shared = sorted(ours.keys() & theirs.keys())
    groups = ({env: scores[env] for env in shared} for scores in (ours, theirs))
    return bootstrap(probability_of_improvement, *groups) if shared else None


def chance_of_a_sweep(runs: Iterable[tuple[int, int]]) -> float:
    """How likely one of two equal sides is to win every pair on every env; `runs` are the counts of both per env.

    An exact permutation argument: 2 / Π_env C(n + m, n). With 3 runs against 3 on one env it is 0.1.
    """
    return 2.0 / math.prod(math.comb(ours + theirs, ours) for ours, theirs in runs)


def enough_runs(ours: Scores, theirs: Scores) -> bool:
    """Whether an interval can mean anything: with single runs it has no width, and a sweep must not be chance."""
    counts = [(len(ours[env]), len(theirs[env])) for env in ours.keys() & theirs.keys()]
    several = bool(counts) and float(np.median([min(pair) for pair in counts])) >= 2
    return several and chance_of_a_sweep(counts) <= CHANCE


def _main_variant(records: Sequence[RunRecord], labels: Sequence[str]) -> str:
    """The first adaptive variant that finished a run, else the first adaptive one, else the first."""
    adaptive = [record for record in records if record.scaler == "adaptive"]
    finished = {record.label for record in adaptive if record.finished} or {record.label for record in adaptive}
    return next((label for label in labels if label in finished), labels[0] if labels else "")


def _outcome(probability: Interval, ours: Scores, theirs: Scores) -> Outcome:
    if not enough_runs(ours, theirs):
        return "too few"
    if probability.low > 0.5:
        return "beats"
    return "loses" if probability.high < 0.5 else "undecided"


def _sentence(outcome: Outcome, label: str, rival: str, probability: Interval) -> str:
    told = f"{probability.value:.2f} [{probability.low:.2f}, {probability.high:.2f}]"
    match outcome:
        case "beats":
            return f"{label} beats {rival} with probability {told}."
        case "loses":
            return f"{label} loses to {rival}: it is better with probability {told} only."
        case "undecided":
            return f"{label} is not distinguishable from {rival} ({told})."
        case _:
            return (
                f"{label} against {rival}: too few runs to tell. It was better in {probability.value:.0%} of the pairs "
                "of runs, which chance alone could do."
            )


def _headline(label: str, findings: Sequence[Finding], place: str) -> str:
    words: dict[Outcome, str] = {
        "beats": "beats",
        "loses": "loses to",
        "undecided": "is not distinguishable from",
        "too few": "has too few runs to be told from",
        "apart": f"shares no finished {place} with",
    }
    parts: list[str] = []
    for outcome, phrase in words.items():
        rivals = [finding.rival for finding in findings if finding.outcome == outcome]
        if rivals:
            parts.append(f"{phrase} {listed(rivals)}")
    return f"{label} {'; it '.join(parts)}."


def _lone_headline(records: Sequence[RunRecord], scoring: Scoring, labels: Sequence[str]) -> str:
    if len(records) == 1 and labels:
        return _headline_of_one(records[0], scoring)
    if not labels:
        return "No run here can be read."
    envs = sorted({record.env for record in records if record.label})
    scored = sum(map(len, scoring.raw.get(labels[0], {}).values()))
    return (
        f"One variant, {labels[0]}: nothing to compare it with. {counted(scored, 'finished run')} "
        f"on {counted(len(envs), scoring.words.place)}."
    )


def _headline_of_one(record: RunRecord, scoring: Scoring) -> str:
    """What a single run came to, as far as that is known."""
    name = f"{record.label} on {record.env}"
    length = f"{record.clock:,.0f} {record.kind.words.clock}" if record.clock else "the start"
    score = record.score(scoring.field)
    if record.finished and score is not None:
        return f"{name} reached {score:.4g} after {length} ({scoring.field_name})."
    return f"{name}: {record.status} after {length}."


def _basis(records: Sequence[RunRecord], scoring: Scoring) -> str:
    counts = [len(values) for scores in scoring.raw.values() for values in scores.values()]
    envs = {env for scores in scoring.raw.values() for env in scores}
    if not counts:
        return f"None of {counted(len(records), 'run')} has finished with a score."
    place = scoring.words.place
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    sizes = ((sum(counts), "finished run"), (len(scoring.raw), "variant"), (len(envs), place))
    return (
        f"From {', '.join(counted(*size) for size in sizes)}, "
        f"{seeds} {'run' if max(counts) == 1 else 'runs'} per variant and {place}. The score is the "
        f"{scoring.field_name}, {scoring.scale}: {scoring.explanation}."
    )


def _effort_notes(records: Sequence[RunRecord], label: str, rival: str) -> list[str]:
    notes: list[str] = []
    for kind in kinds_of(records):
        alike = [record for record in records if record.kind is kind]
        steps = _ratio_of(alike, label, rival, "gradient_steps")
        if _differs(steps):
            made = f"{_times(steps)} as many {kind.words.updates}"
            notes.append(f"{rival} made {made}: it is not a comparison of batches alone.")
        length = _ratio_of(alike, label, rival, "clock")
        if _differs(length):
            trained = f"{_times(length)} as many {kind.words.clock}"
            notes.append(f"{rival} trained for {trained}: it is not a comparison at equal data.")
    return notes


def _differs(ratio: float | None) -> TypeGuard[float]:
    return ratio is not None and abs(math.log(ratio)) > math.log1p(MATERIAL)


def _ratio_of(records: Sequence[RunRecord], label: str, rival: str, quantity: str) -> float | None:
    """The rival's mean over ours, per env, and then the geometric mean over the envs that both finished."""
    ours, theirs = (_env_means(records, name, quantity) for name in (label, rival))
    ratios = [theirs[env] / ours[env] for env in ours.keys() & theirs.keys()]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def _env_means(records: Sequence[RunRecord], label: str, quantity: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for record in records:
        value = getattr(record, quantity)
        if record.finished and record.label == label and value:
            values.setdefault(record.env, []).append(value)
    return {env: float(np.mean(entries)) for env, entries in values.items()}


def _times(ratio: float) -> str:
    return f"{ratio:.1f} ×" if abs(ratio - 1) >= 0.15 else f"{ratio:.2f} ×"
