"""From scores to sentences: who beats whom, how sure that is, and what else could explain it. Pure functions.

A claim needs an interval that excludes one half, and enough runs that a clean sweep would not be chance.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from swell.errors import ConfigError
from swell.report.records import RunRecord, natural_key
from swell.report.scoring import Scores, Scoring
from swell.report.stats import Interval, bootstrap, probability_of_improvement

Outcome = Literal["beats", "loses", "undecided", "too few", "apart"]

ENOUGH_SEEDS = 5
"""With fewer runs per env the page warns."""
MATERIAL = 0.05
"""Two sides that differ by more than this share in gradient steps or env steps do not differ in the batch alone."""
CHANCE = 0.05
"""Largest chance of a clean sweep between equals at which anything may be claimed."""
_NO_PART_IN_LEARNING = {
    *("env", "seed", "label", "preset", "device", "threads", "async_envs", "checkpoint_every", "checkpoint_minutes"),
}


@dataclass(frozen=True)
class Finding:
    """The protagonist against one rival."""

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
    """The variants in the order of the page: the protagonist, then the others by name."""
    labels = sorted({record.label for record in records if record.label}, key=natural_key)
    if about is not None and about not in labels:
        raise ConfigError(f"no run has the label {about!r}; there are {', '.join(map(repr, labels)) or 'none'}")
    first = about or _protagonist(records, labels)
    return [first, *(label for label in labels if label != first)] if labels else []


def judge(records: Sequence[RunRecord], scoring: Scoring, about: str | None = None) -> Verdict:
    """Sentences about the protagonist and each rival, and what to be careful about."""
    labels = variant_labels(records, about)
    cautions = [*_cautions_about_runs(records, scoring, labels)]
    if len(labels) < 2:
        return Verdict(_lone_headline(records, scoring, labels), "", (), tuple(cautions))
    findings = tuple(compare(records, scoring, labels[0], rival) for rival in labels[1:])
    if len(findings) > 1:
        cautions.append(
            f"Each interval is a 95 % interval for its own pair. They are not corrected for the {len(findings)} "
            "comparisons made here: the more there are, the likelier one of them errs."
        )
    return Verdict(_headline(labels[0], findings), _basis(records, scoring), findings, tuple(cautions))


def compare(records: Sequence[RunRecord], scoring: Scoring, label: str, rival: str) -> Finding:
    """One sentence about two variants, with notes on what differs between them besides the batch."""
    ours, theirs = scoring.normalized.get(label, {}), scoring.normalized.get(rival, {})
    probability = improvement(ours, theirs)
    if probability is None:
        return Finding(rival, "apart", f"{label} and {rival} have no env that both finished.", (), None)
    outcome = _outcome(probability, ours, theirs)
    notes = (*_env_notes(ours, theirs, label, rival), *_effort_notes(records, label, rival))
    return Finding(rival, outcome, _sentence(outcome, label, rival, probability), notes, probability)


def improvement(ours: Scores, theirs: Scores) -> Interval | None:
    """Probability that a run of ours is better than one of theirs on the same env; None without a shared env."""
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    return bootstrap(
        probability_of_improvement, {env: ours[env] for env in shared}, {env: theirs[env] for env in shared}
    )


def chance_of_a_sweep(runs: Iterable[tuple[int, int]]) -> float:
    """How likely one of two equal sides is to win every pair on every env; `runs` are the counts of both per env.

    An exact permutation argument: 2 / Π_env C(n + m, n). With 3 runs against 3 on one env it is 0.1.
    """
    return 2.0 / math.prod(math.comb(ours + theirs, ours) for ours, theirs in runs)


def enough_runs(ours: Scores, theirs: Scores) -> bool:
    """Whether an interval can mean anything: with single runs it has no width, and a sweep must not be chance."""
    counts = [(len(ours[env]), len(theirs[env])) for env in ours.keys() & theirs.keys()]
    return (
        bool(counts) and float(np.median([min(pair) for pair in counts])) >= 2 and chance_of_a_sweep(counts) <= CHANCE
    )


def describe(interval: Interval) -> str:
    """`0.81 [0.62, 0.94]`."""
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _protagonist(records: Sequence[RunRecord], labels: Sequence[str]) -> str:
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
    match outcome:
        case "beats":
            return f"{label} beats {rival} with probability {describe(probability)}."
        case "loses":
            return f"{label} loses to {rival}: it is better with probability {describe(probability)} only."
        case "undecided":
            return f"{label} is not distinguishable from {rival} ({describe(probability)})."
        case _:
            return (
                f"{label} against {rival}: too few runs to tell. It was better in {probability.value:.0%} of the pairs "
                "of runs, which chance alone could do."
            )


def _headline(label: str, findings: Sequence[Finding]) -> str:
    words: dict[Outcome, str] = {
        "beats": "beats",
        "loses": "loses to",
        "undecided": "is not distinguishable from",
        "too few": "has too few runs to be told from",
        "apart": "shares no finished env with",
    }
    parts: list[str] = []
    for outcome, phrase in words.items():
        rivals = [finding.rival for finding in findings if finding.outcome == outcome]
        if rivals:
            parts.append(f"{phrase} {_listed(rivals)}")
    return f"{label} {'; it '.join(parts)}."


def _lone_headline(records: Sequence[RunRecord], scoring: Scoring, labels: Sequence[str]) -> str:
    if len(records) == 1:
        return "One run: nothing to compare."
    if not labels:
        return "No run here can be read."
    envs = sorted({record.env for record in records if record.label})
    scored = sum(map(len, scoring.raw.get(labels[0], {}).values()))
    return (
        f"One variant, {labels[0]}: nothing to compare it with. {_count(scored, 'finished run')} "
        f"on {_count(len(envs), 'env')}."
    )


def _basis(records: Sequence[RunRecord], scoring: Scoring) -> str:
    counts = [len(values) for scores in scoring.raw.values() for values in scores.values()]
    envs = {env for scores in scoring.raw.values() for env in scores}
    if not counts:
        return f"None of {_count(len(records), 'run')} has finished with a score."
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    sizes = ((sum(counts), "finished run"), (len(scoring.raw), "variant"), (len(envs), "env"))
    return (
        f"From {', '.join(_count(*size) for size in sizes)}, "
        f"{seeds} {'run' if max(counts) == 1 else 'runs'} per variant and env. The score is the {scoring.field_words}, "
        f"{scoring.scale}: {scoring.explanation}."
    )


def _env_notes(ours: Scores, theirs: Scores, label: str, rival: str) -> list[str]:
    shared = ours.keys() & theirs.keys()
    if shared == ours.keys() | theirs.keys():
        return []
    return [f"Compared on the {_count(len(shared), 'env')} that both finished, of {len(ours.keys() | theirs.keys())}."]


def _effort_notes(records: Sequence[RunRecord], label: str, rival: str) -> list[str]:
    notes: list[str] = []
    steps = _ratio_of(records, label, rival, "gradient_steps")
    if steps is not None and abs(math.log(steps)) > math.log1p(MATERIAL):
        notes.append(f"{rival} made {_times(steps)} as many gradient steps: it is not a comparison of batches alone.")
    length = _ratio_of(records, label, rival, "env_steps")
    if length is not None and abs(math.log(length)) > math.log1p(MATERIAL):
        notes.append(f"{rival} trained for {_times(length)} as many env steps: it is not a comparison at equal data.")
    return notes


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


def _cautions_about_runs(records: Sequence[RunRecord], scoring: Scoring, labels: Sequence[str]) -> list[str]:
    several = len(records) > 1
    return [
        *(_few_seeds(scoring, labels) if len(labels) > 1 else []),
        *(_unfinished(records, labels) if several else []),
        *_without_score(records, scoring, labels),
        *_uneven(records, labels),
        *_repeated(records),
        *_mixed(records, labels),
        *_unreadable(records),
    ]


def _few_seeds(scoring: Scoring, labels: Sequence[str]) -> list[str]:
    fewest = {label: min(map(len, scoring.raw[label].values())) for label in labels if label in scoring.raw}
    few = [f"{label} ({count})" for label, count in fewest.items() if count < ENOUGH_SEEDS]
    if not few:
        return []
    names = "every variant" if len(few) == len(labels) and len(set(fewest.values())) == 1 else _listed(few)
    return [
        f"Fewer than {ENOUGH_SEEDS} finished runs per env for {names}: intervals from so few runs are too narrow, "
        "and a claim should wait for more."
    ]


def _unfinished(records: Sequence[RunRecord], labels: Sequence[str]) -> list[str]:
    cautions: list[str] = []
    for label in labels:
        runs = [record for record in records if record.label == label]
        states = Counter(record.status for record in runs if not record.finished)
        if states:
            told = ", ".join(f"{count} {status}" for status, count in sorted(states.items()))
            cautions.append(
                f"{states.total()} of {_count(len(runs), 'run')} of {label} did not finish ({told}) and "
                f"{_has(states.total())} no score here. If the bad ones are missing, that flatters it."
            )
    return cautions


def _without_score(records: Sequence[RunRecord], scoring: Scoring, labels: Sequence[str]) -> list[str]:
    silent = Counter(r.label for r in records if r.finished and r.score(scoring.field) is None)
    return [
        f"{_count(silent[label], 'finished run')} of {label} {_has(silent[label])} no score: no episode ended."
        for label in labels
        if silent[label]
    ]


def _unreadable(records: Sequence[RunRecord]) -> list[str]:
    count = sum(record.status == "unreadable" for record in records)
    return [f"{_count(count, 'run')} could not be read: see the list of runs."] if count else []


def _uneven(records: Sequence[RunRecord], labels: Sequence[str]) -> list[str]:
    counts = Counter(record.label for record in records if record.label)
    usual = Counter(counts.values()).most_common(1)[0][0] if counts else 0
    unusual = [f"{label} has {counts[label]}" for label in labels if counts[label] != usual]
    return [f"Variants differ in their number of runs: {_listed(unusual)}, the usual is {usual}."] if unusual else []


def _repeated(records: Sequence[RunRecord]) -> list[str]:
    seen = Counter((r.env, r.label, r.seed) for r in records if r.finished and r.seed is not None)
    twice = sorted({label for (_, label, _), count in seen.items() if count > 1})
    if not twice:
        return []
    return [f"The same seed appears more than once on an env for {_listed(twice)}: such runs are not independent."]


def _mixed(records: Sequence[RunRecord], labels: Sequence[str]) -> list[str]:
    """A label that somebody gave says which runs belong together; the label that runs get by default does not."""
    cautions: list[str] = []
    for label in labels:
        runs = [r for r in records if r.label == label and not r.config.get("label") and r.config]
        fields = sorted(_fields_that_differ_within_an_env(runs))
        if fields:
            told = ", ".join(fields[:6]) + (", …" if len(fields) > 6 else "")
            cautions.append(f"Runs called {label} differ in {told}. Give them labels (--label) to tell them apart.")
    return cautions


def _fields_that_differ_within_an_env(runs: Sequence[RunRecord]) -> set[str]:
    fields: set[str] = set()
    first: dict[str, Mapping[str, object]] = {}
    for run in runs:
        reference = first.setdefault(run.env, run.config)
        shared = (reference.keys() & run.config.keys()) - _NO_PART_IN_LEARNING
        fields |= {name for name in shared if reference[name] != run.config[name]}
    return fields


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def _times(ratio: float) -> str:
    return f"{ratio:.1f} ×" if abs(ratio - 1) >= 0.15 else f"{ratio:.2f} ×"


def _has(number: int) -> str:
    return "has" if number == 1 else "have"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
