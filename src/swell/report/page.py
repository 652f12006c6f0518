"""What the sections of a report share: HTML whose text is escaped, and the page with its runs, scores, figures."""

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from swell.report import figures
from swell.report.figures import Figure
from swell.report.records import RunRecord, kinds_of, natural_key
from swell.report.scoring import Scores, score_runs
from swell.report.stats import Interval
from swell.report.verdict import judge, variant_labels
from swell.report.words import ENV_RUN, Kind


class Html(str):
    """Text that is markup already; any other text is escaped on its way into the page."""

    __slots__ = ()


def tag(name: str, content: str = "", **attributes: str) -> Html:
    """An element; text is escaped, markup is not. `class_` and `data_x` are written `class` and `data-x`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items() if value
    )
    return Html(f"<{name}{written}>{escape(content)}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """All parts as one piece of markup."""
    return Html("".join(escape(part) for part in parts))


def escape(text: str) -> Html:
    """Text as markup; markup stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def bdi(text: str) -> Html:
    """Text whose direction of writing does not reach beyond it."""
    return tag("bdi", text)


def remark(text: str) -> Html:
    """A paragraph that explains what stands below or above it."""
    return tag("p", text, class_="note")


def kind_remarks(notes: Mapping[Kind, str]) -> Html:
    """What explains each kind of run; with its name where there are several."""
    several = len(notes) > 1
    return join(remark(f"{kind.title}. {note}" if several else note) for kind, note in notes.items())


def scroll_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 99, wrap_from: int = 99, tall: bool = False
) -> Html:
    """A table that scrolls inside its own box; columns from `numbers_from` on are aligned right."""

    def kind(column: int) -> str:
        return "number" if column >= numbers_from else "wrap" if column >= wrap_from else "name"

    titles = join(tag("th", title, class_=kind(column), scope="col") for column, title in enumerate(head))
    lines = join(
        tag("tr", join(tag("td", cell, class_=kind(column)) for column, cell in enumerate(row))) for row in rows
    )
    table = tag("table", join([tag("thead", tag("tr", titles)), tag("tbody", lines)]))
    return tag(
        "div", table, class_="scroll tall" if tall else "scroll", tabindex="0", role="region", aria_label="Table"
    )


def plot_grid(content: Html, kind: str = "") -> Html:
    """A box for figures; `kind` says how many stand beside each other."""
    return tag("div", content, class_=f"plots {kind}".strip())


def interval_cell(interval: Interval, format_value: Callable[[float], str]) -> Html:
    """A value with its bounds, all in the same format."""
    bounds = f" [{format_value(interval.low)}, {format_value(interval.high)}]"
    return join([format_value(interval.value), tag("span", bounds, class_="interval")])


def first_upper(words: str) -> str:
    """Words at the head of a column or of a section; only the first letter changes."""
    return words[:1].upper() + words[1:]


def format_number(value: float | None) -> str:
    """Four digits, or all before the point."""
    if value is None:
        return "–"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", "−")


def format_share(value: float) -> str:
    """Two digits after the point, or a dash where there is no number."""
    return "–" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def format_signed(value: float) -> str:
    """Three digits and the sign, or all before the point."""
    return (f"{value:+,.0f}" if abs(value) >= 1000 else f"{value:+.3g}").replace("-", "−")


def format_duration(seconds: float | None) -> str:
    """Seconds, minutes or hours; a dash for what is not known."""
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Page:
    """What all sections share, and the figures that they have asked for so far."""

    def __init__(self, records: Sequence[RunRecord], about: str | None) -> None:
        self.records = records
        self.kinds = kinds_of(records) or [ENV_RUN]
        self.scoring = score_runs(records)
        self.words = self.scoring.words
        self.verdict = judge(records, self.scoring, about)
        self.labels = variant_labels(records, about)
        self.envs = sorted({record.env for record in records if record.env}, key=natural_key)
        self.figures: list[Figure] = []
        self.captions: list[str] = []

    def plot(self, figure: Figure, caption: str = "") -> Html:
        """A place for a figure."""
        self.figures.append(figure)
        self.captions.append(caption)
        place = tag("div", class_="plot", data_figure=str(len(self.figures) - 1))
        return tag("figure", join([tag("figcaption", bdi(caption)) if caption else Html(), place]))

    def plot_per_env(self, draw: Callable[[str], Figure | None]) -> Html:
        """A box with the figure of each env that has one; nothing if none has."""
        drawn = [(env, draw(env)) for env in self.envs]
        plots = join(self.plot(figure, env) for env, figure in drawn if figure)
        return plot_grid(plots, {1: "wide", 2: "pair", 4: "pair"}.get(len(self.envs), "")) if plots else Html()

    def runs_of(self, label: str) -> list[RunRecord]:
        return [record for record in self.records if record.label == label]

    def comparable(self) -> dict[str, Scores]:
        """Normalised scores on the envs that every scored variant finished, so that aggregates are of the same envs."""
        scores = {label: self.scoring.normalized[label] for label in self.labels if label in self.scoring.normalized}
        shared = set(self.envs).intersection(*scores.values()) if scores else set[str]()
        if not shared:
            return {}
        return {label: {env: by_env[env] for env in sorted(shared)} for label, by_env in scores.items()}

    @property
    def score_name(self) -> str:
        return f"{self.scoring.scale} score"


def swatch(variant: int) -> Html:
    """The line of a variant as its plots draw it."""
    dashes = {"solid": "", "dash": "7 4", "dot": "2.5 3", "dashdot": "7 3 2 3", "longdash": "11 4"}
    pattern = dashes.get(figures.dash(variant), "11 3 2 3")
    return Html(
        '<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true"><line x1="0" y1="6" x2="28" y2="6" '
        f'style="stroke:var(--v{variant % figures.COLOURS})" stroke-dasharray="{pattern}"></line></svg>'
    )
