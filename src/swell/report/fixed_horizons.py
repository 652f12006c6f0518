"""Which variants have a fixed horizon, and which of those are alike in everything else: the yardsticks of regret."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from swell.config.batch import (
    AdaptiveSettings,
    BatchSettings,
    NoiseScaleSettings,
    NoiseSignalSettings,
    PolicyChangeSettings,
    RampSettings,
)
from swell.report.cautions import NO_PART_IN_LEARNING
from swell.report.records import RunRecord, natural_key

UNMOVED = ("fixed", "none")
"""Scalers that leave the batch as it is."""
SAME_LENGTH = 0.05
"""Runs whose lengths differ by no more than this share are of the same length."""
_MOVES_A_HORIZON = {
    entry.name
    for settings in (AdaptiveSettings, NoiseScaleSettings, RampSettings, PolicyChangeSettings, NoiseSignalSettings)
    for entry in fields(settings)
} - {entry.name for entry in fields(BatchSettings)}
_IGNORED = {
    *NO_PART_IN_LEARNING,
    *_MOVES_A_HORIZON,
    *("scaler", "evaluate_every", "evaluation_episodes", "track", "memory_limit"),
}
"""Options in which fixed horizons may differ and still be alike: none of them changes what such a run learns."""


@dataclass(frozen=True)
class Comparison:
    """Fixed horizons that are alike in everything else, and the variants that are measured against them."""

    fixed: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return *self.fixed, *self.others


def comparisons(records: Sequence[RunRecord], labels: Sequence[str]) -> list[Comparison]:
    """Every set of two or more fixed horizons with the same other settings.

    A variant that is in none is measured against the one whose settings differ from its own in the fewest options.
    """
    settings = {label: _settings(records, label) for label in labels}
    families: list[list[str]] = []
    for label in sorted((label for label in labels if _fixed_horizon(records, label)), key=natural_key):
        family = next((known for known in families if all(_alike(settings[label], settings[one]) for one in known)), [])
        if not family:
            families.append(family)
        family.append(label)
    yardsticks = [family for family in families if len({_fixed_horizon(records, label) for label in family}) > 1]
    others: dict[int, list[str]] = {number: [] for number in range(len(yardsticks))}
    for label in labels:
        if yardsticks and not any(label in family for family in yardsticks):
            distances = [_distance(settings[label], settings[family[0]]) for family in yardsticks]
            others[distances.index(min(distances))].append(label)
    return [Comparison(tuple(family), tuple(others[number])) for number, family in enumerate(yardsticks)]


def of_one_length(records: Sequence[RunRecord], comparison: Comparison) -> list[RunRecord]:
    """The finished runs of a comparison, without variants that were shorter or longer on an env than its fixed ones."""
    runs = [record for record in records if record.finished and record.label in comparison.labels and record.clock]
    longest: dict[str, float] = {}
    for run in runs:
        if run.label in comparison.fixed:
            longest[run.env] = max(longest.get(run.env, 0.0), run.clock or 0.0)
    uneven = {
        (run.env, run.label)
        for run in runs
        if abs((run.clock or 0.0) - longest.get(run.env, 0.0)) > SAME_LENGTH * longest.get(run.env, 0.0)
    }
    return [run for run in runs if (run.env, run.label) not in uneven]


def _fixed_horizon(records: Sequence[RunRecord], label: str) -> int | None:
    """The horizon that all runs of a variant have; None where there are several, as with matched updates."""
    runs = [record for record in records if record.label == label and record.config]
    horizons = {run.config.get(run.kind.fixed_batch) for run in runs}
    if not runs or len(horizons) != 1 or not all(run.scaler in UNMOVED for run in runs):
        return None
    horizon = horizons.pop()
    return horizon if isinstance(horizon, int) else None


def _settings(records: Sequence[RunRecord], label: str) -> dict[str, dict[str, Any]]:
    """Env -> the options that decide what a fixed horizon learns."""
    by_env: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.label == label and record.config:
            by_env.setdefault(record.env, _options(record))
    return by_env


def _options(record: RunRecord) -> dict[str, Any]:
    config = record.config
    options = {name: value for name, value in config.items() if name not in {*_IGNORED, record.kind.fixed_batch}}
    reference, num_envs, horizon = (config.get(name) for name in ("reference_batch", "num_envs", "horizon"))
    if config.get("invariance") != "on" and config.get("learning_rate_rule") != "sqrt":
        options.pop("reference_batch", None)  # nothing refers to it
    elif reference is None and isinstance(num_envs, int) and isinstance(horizon, int):
        options["reference_batch"] = num_envs * horizon
    return options


def _alike(ours: Mapping[str, dict[str, Any]], theirs: Mapping[str, dict[str, Any]]) -> bool:
    shared = ours.keys() & theirs.keys()
    return bool(shared) and all(ours[env] == theirs[env] for env in shared)


def _distance(ours: Mapping[str, dict[str, Any]], theirs: Mapping[str, dict[str, Any]]) -> float:
    """In how many options two variants differ, in the mean over the envs of both."""
    shared = ours.keys() & theirs.keys()
    counts = [
        sum(ours[env].get(name) != theirs[env].get(name) for name in ours[env].keys() | theirs[env].keys())
        for env in shared
    ]
    return sum(counts) / len(counts) if counts else float("inf")
