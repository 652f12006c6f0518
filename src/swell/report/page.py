"""What all sections of a report share: the runs, their scores, the verdict on them, and the figures of the page."""

from collections.abc import Sequence

from swell.report import figures
from swell.report.figures import Figure
from swell.report.markup import Html, bdi, join, tag
from swell.report.records import RunRecord, natural_key
from swell.report.scoring import Scores, score_runs
from swell.report.verdict import judge, variant_labels


class Page:
    """What all sections share, and the figures that they have asked for so far."""

    def __init__(self, records: Sequence[RunRecord], about: str | None) -> None:
        self.records = records
        self.scoring = score_runs(records)
        self.verdict = judge(records, self.scoring, about)
        self.labels = variant_labels(records, about)
        self.envs = sorted({record.env for record in records if record.env}, key=natural_key)
        self.figures: list[Figure] = []

    def plot(self, figure: Figure, caption: str = "") -> Html:
        """A place for a figure."""
        self.figures.append(figure)
        place = tag("div", class_="plot", data_figure=str(len(self.figures) - 1))
        return tag("figure", join([tag("figcaption", bdi(caption)) if caption else Html(), place]))

    def runs_of(self, label: str) -> list[RunRecord]:
        return [record for record in self.records if record.label == label]

    def comparable(self) -> dict[str, Scores]:
        """Normalised scores on the envs that every scored variant finished, so that aggregates are of the same envs."""
        scores = {label: self.scoring.normalized[label] for label in self.labels if label in self.scoring.normalized}
        shared = set(self.envs).intersection(*scores.values()) if scores else set[str]()
        return (
            {label: {env: by_env[env] for env in sorted(shared)} for label, by_env in scores.items()} if shared else {}
        )

    @property
    def score_words(self) -> str:
        return f"{self.scoring.scale} score"


def swatch(variant: int) -> Html:
    """The line of a variant as its plots draw it."""
    dashes = {"solid": "", "dash": "7 4", "dot": "2.5 3", "dashdot": "7 3 2 3", "longdash": "11 4"}
    pattern = dashes.get(figures.dash(variant), "11 3 2 3")
    return Html(
        '<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true"><line x1="0" y1="6" x2="28" y2="6" '
        f'style="stroke:var(--v{variant % figures.COLOURS})" stroke-dasharray="{pattern}"></line></svg>'
    )
