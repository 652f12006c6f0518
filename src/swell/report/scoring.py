"""The scores of finished runs: which number counts, and what 0 and 1 mean."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swell.report.records import RunRecord, ScoreField, words_for
from swell.report.reference_scores import normalization_name, normalized
from swell.report.words import Words

Scores = dict[str, list[float]]
"""Env -> the scores of its finished runs."""
_REFERENCE_SCALE = "0 and 1 are published reference scores (Atari: random play and a human; Procgen: its hard range)"
_RANGE_SCALE = "0 is the worst run of any variant on that {place}, 1 the best; other runs in the report would change it"


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
    words: Words

    @property
    def by_reference(self) -> bool:
        """Whether 0 and 1 are known from elsewhere, so that a score means something by itself."""
        return self.explanation == _REFERENCE_SCALE

    def rescaled(self, label: str, env: str, score: float) -> float:
        """The normalised score of a run with this raw one."""
        return self.normalized[label][env][self.raw[label][env].index(score)]

    @property
    def field_name(self) -> str:
        return getattr(self.words, self.field)


def score_runs(records: Sequence[RunRecord]) -> Scoring:
    """The scores of finished runs: evaluations if all have one, else those of training; raw and normalised."""
    finished = [record for record in records if record.finished]
    evaluated = bool(finished) and all(record.score("evaluation_score") is not None for record in finished)
    score_field: ScoreField = "evaluation_score" if evaluated else "training_score"
    words = words_for(records)
    raw: dict[str, Scores] = {}
    for record in finished:
        score = record.score(score_field)
        if score is not None:
            raw.setdefault(record.label, {}).setdefault(record.env, []).append(score)
    names = {normalization_name(env) for scores in raw.values() for env in scores}
    if names and None not in names:
        scale = " and ".join(sorted(name for name in names if name))
        by_reference = _rescaled(raw, lambda env, score: normalized(env, score) or 0.0)
        return Scoring(score_field, scale, _REFERENCE_SCALE, raw, by_reference, words)
    pooled: Scores = {}
    for scores in raw.values():
        for env, values in scores.items():
            pooled.setdefault(env, []).extend(values)
    ranges = {env: (min(values), max(values)) for env, values in pooled.items()}

    def share_of_range(env: str, score: float) -> float:
        low, high = ranges[env]
        return (score - low) / (high - low) if high > low else 0.5

    explanation = _RANGE_SCALE.format(place=words.place)
    return Scoring(score_field, "min–max normalised", explanation, raw, _rescaled(raw, share_of_range), words)


def _rescaled(raw: Mapping[str, Scores], rescale: Callable[[str, float], float]) -> dict[str, Scores]:
    return {
        label: {env: [rescale(env, score) for score in values] for env, values in scores.items()}
        for label, scores in raw.items()
    }
