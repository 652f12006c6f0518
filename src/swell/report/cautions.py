"""What to be careful about when reading a comparison: few seeds, missing runs, mixed options. Pure functions."""

from collections import Counter
from collections.abc import Mapping, Sequence

from swell.report.records import RunRecord
from swell.report.scoring import Scoring

ENOUGH_SEEDS = 5
"""With fewer runs per env the page warns."""
NO_PART_IN_LEARNING = {
    *("env", "seed", "label", "preset", "device", "threads", "async_envs", "checkpoint_every", "checkpoint_minutes"),
    *("output_dir", "logging_dir", "run_name"),
}
"""Options in which runs of one variant may differ."""


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def counted(number: int, thing: str) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def find_cautions(records: Sequence[RunRecord], scoring: Scoring, labels: Sequence[str]) -> list[str]:
    """What to be careful about in these runs, a sentence each."""
    return [
        *(_few_seeds(scoring, labels) if len(labels) > 1 else []),
        *(_unfinished(records, labels) if len(records) > 1 else []),
        *_without_score(records, scoring, labels),
        *_uneven(records, labels),
        *_repeated(records, scoring),
        *_mixed(records, labels),
        *_unreadable(records),
    ]


def _few_seeds(scoring: Scoring, labels: Sequence[str]) -> list[str]:
    fewest = {label: min(map(len, scoring.raw[label].values())) for label in labels if label in scoring.raw}
    few = [f"{label} ({count})" for label, count in fewest.items() if count < ENOUGH_SEEDS]
    if not few:
        return []
    names = "every variant" if len(few) == len(labels) and len(set(fewest.values())) == 1 else listed(few)
    return [
        f"Fewer than {ENOUGH_SEEDS} finished runs per {scoring.words.place} for {names}: intervals from so few runs "
        "are too narrow, and a claim should wait for more."
    ]


def _unfinished(records: Sequence[RunRecord], labels: Sequence[str]) -> list[str]:
    cautions: list[str] = []
    for label in labels:
        runs = [record for record in records if record.label == label]
        states = Counter(record.status for record in runs if not record.finished)
        if states:
            told = ", ".join(f"{count} {status}" for status, count in sorted(states.items()))
            cautions.append(
                f"{states.total()} of {counted(len(runs), 'run')} of {label} did not finish ({told}) and "
                f"{_has(states.total())} no score here. If the bad ones are missing, that flatters it."
            )
    return cautions


def _without_score(records: Sequence[RunRecord], scoring: Scoring, labels: Sequence[str]) -> list[str]:
    silent = [record for record in records if record.finished and record.score(scoring.field) is None]
    cautions: list[str] = []
    for label in labels:
        reasons = Counter(record.kind.without_score for record in silent if record.label == label)
        for reason, count in sorted(reasons.items()):
            cautions.append(f"{counted(count, 'finished run')} of {label} {_has(count)} no score: {reason}.")
    return cautions


def _unreadable(records: Sequence[RunRecord]) -> list[str]:
    count = sum(record.status == "unreadable" for record in records)
    return [f"{counted(count, 'run')} could not be read: see the list of runs."] if count else []


def _uneven(records: Sequence[RunRecord], labels: Sequence[str]) -> list[str]:
    counts = Counter(record.label for record in records if record.label)
    usual = Counter(counts.values()).most_common(1)[0][0] if counts else 0
    unusual = [f"{label} has {counts[label]}" for label in labels if counts[label] != usual]
    return [f"Variants differ in their number of runs: {listed(unusual)}, the usual is {usual}."] if unusual else []


def _repeated(records: Sequence[RunRecord], scoring: Scoring) -> list[str]:
    seen = Counter((r.env, r.label, r.seed) for r in records if r.finished and r.seed is not None)
    twice = sorted({label for (_, label, _), count in seen.items() if count > 1})
    if not twice:
        return []
    return [
        f"The same seed appears more than once on the same {scoring.words.place} for {listed(twice)}: such runs are "
        "not independent."
    ]


def _mixed(records: Sequence[RunRecord], labels: Sequence[str]) -> list[str]:
    """A label that somebody gave says which runs belong together; the label that runs get by default does not.

    Another implementation of the env is told in either case: its scores are not to be pooled unnoticed.
    """
    cautions: list[str] = []
    for label in labels:
        runs = [r for r in records if r.label == label and r.config]
        unnamed = [r for r in runs if not r.config.get("label")]
        backends = _fields_that_differ_within_an_env(runs) & {"backend"}
        fields = sorted(_fields_that_differ_within_an_env(unnamed) | backends)
        if fields:
            told = ", ".join(fields[:6]) + (", …" if len(fields) > 6 else "")
            cautions.append(
                f"Runs called {label} differ in {told}. Give them labels (option label) to tell them apart."
            )
    return cautions


def _fields_that_differ_within_an_env(runs: Sequence[RunRecord]) -> set[str]:
    fields: set[str] = set()
    first: dict[str, Mapping[str, object]] = {}
    for run in runs:
        reference = first.setdefault(run.env, run.config)
        shared = (reference.keys() & run.config.keys()) - NO_PART_IN_LEARNING
        fields |= {name for name in shared if reference[name] != run.config[name]}
    return fields


def _has(number: int) -> str:
    return "has" if number == 1 else "have"
