"""Figures of a report as plain dicts that plotly.js draws: their parts, dots and bars. plotly is not imported.

An entry is a trace with what the page needs to show or hide it: the variant it belongs to, the x axis it is drawn over,
and the band around it. Colours are names such as `@v0` that the page replaces by those of its theme. Names of variants
and envs are escaped here, because plotly reads a little HTML and `%{…}` in its texts.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from swell.report.scoring import Scores
from swell.report.stats import Interval

Entry = dict[str, Any]
Axis = Literal["clock", "wall_seconds", "gradient_steps"]

COLOURS = 8
"""Colours of variants on the page, `@v0` to `@v7`."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
NAME_LENGTH = 26
OTHER = "other"
"""Time that is in no phase: evaluation and checkpoints."""
PHASE_COLOURS = {"act": 0, "generate": 0, "env": 1, "update": 2, "measure": 3, OTHER: 4}
"""Of `@p0` to `@p4`."""


@dataclass(frozen=True)
class Figure:
    """One plot."""

    entries: list[Entry]
    layout: dict[str, Any] = field(default_factory=dict[str, Any])
    height: int = 250

    def as_json(self) -> dict[str, Any]:
        return {"entries": self.entries, "layout": self.layout, "height": self.height}


def plotly_text(text: str) -> str:
    """A name that plotly shows as it is: no tags, no links, no `%{…}` of its templates."""
    return html.escape(text, quote=False).replace("%{", "%&#123;")


def short_names(names: Sequence[str], length: int = NAME_LENGTH) -> dict[str, str]:
    """Name -> what fits beside an axis, cut in the middle where it must be; distinct names stay distinct."""
    short: dict[str, str] = {}
    half = (length - 1) // 2
    for name in names:
        cut = name if len(name) <= length else f"{name[:half]}…{name[-half:]}"
        while cut in short.values():
            cut += "′"
        short[name] = cut
    return short


def rounded(values: Iterable[float]) -> list[float | None]:
    """Four digits, which is what a plot can show; None for what is not finite."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def colour(variant: int, opacity: float = 1.0) -> str:
    """The name of a variant's colour."""
    return f"@v{variant % COLOURS}" if opacity == 1.0 else f"@v{variant % COLOURS}/{opacity:g}"


def dash(variant: int) -> str:
    """The line of a variant, so that colour is not all that tells it."""
    return DASHES[variant % len(DASHES)]


def line_style(variant: int) -> dict[str, Any]:
    """Solid lines are wide, so that they show beneath a dashed one that runs over them."""
    return {"color": colour(variant), "dash": dash(variant), "width": 3.5 if dash(variant) == "solid" else 2}


def entry(trace: dict[str, Any], variant: int | None, axis: Axis | None = None) -> Entry:
    """A trace of a variant, over one of the x axes of its figure."""
    return {"variant": variant, "axis": axis, "trace": trace}


def scatter(mode: str, x: Sequence[float | None], y: Sequence[object], **style: Any) -> dict[str, Any]:
    """A trace of points, lines or both."""
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **style}


def titled(title: str, **style: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, **style}


def log_axis(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis whose ticks are whole numbers such as 0.02 and 500, not the digits 2 and 5 alone."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first <= 3 else (1,)
    every = max(1, (last - first) // 8)
    ticks = [float(f"{digit}e{power}") for power in range(first, last + 1, every) for digit in digits]
    texts = [f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in ticks]
    return {"type": "log", "tickmode": "array", "tickvals": ticks, "ticktext": texts}


def interval_dots(intervals: Mapping[str, Interval], labels: Sequence[str], x_title: str) -> Figure:
    """A dot and an interval per variant."""
    names = short_names(labels)
    entries: list[Entry] = []
    for label, interval in intervals.items():
        variant = labels.index(label)
        entries.append(entry(_dot(interval, names[label], colour(variant), ""), variant))
    return _row_figure(entries, titled(x_title), len(intervals))


def probabilities(intervals: Mapping[str, Interval], labels: Sequence[str], title: str) -> Figure:
    """Probability of improvement over each rival, with the line of no difference."""
    figure = interval_dots(intervals, labels, title)
    line = {"type": "line", "x0": 0.5, "x1": 0.5, "yref": "paper", "y0": 0, "y1": 1}
    shapes = [{**line, "line": {"color": "@text", "width": 1, "dash": "dot"}}]
    layout = {**figure.layout, "shapes": shapes, "xaxis": titled(title, range=[-0.03, 1.03])}
    return Figure(figure.entries, layout, figure.height)


def score_dots(scores: Mapping[str, Scores], labels: Sequence[str], env: str, x_title: str) -> Figure:
    """Every run of one env as a dot."""
    names = short_names(labels)
    entries: list[Entry] = []
    for variant, label in enumerate(labels):
        values = scores.get(label, {}).get(env, [])
        if values:
            marker = {"color": colour(variant, 0.75), "size": 9, "symbol": "circle-open", "line": {"width": 2}}
            hover = "%{x:.4~g}<extra>" + plotly_text(label) + "</extra>"
            rows = [plotly_text(names[label])] * len(values)
            entries.append(
                entry(scatter("markers", rounded(values), rows, marker=marker, hovertemplate=hover), variant)
            )
    return _row_figure(entries, titled(x_title), len(entries))


def improvement_per_env(
    differences: Mapping[str, tuple[Interval, bool]], ours: int, theirs: int, x_title: str
) -> Figure:
    """Difference of means per env, the largest first; the flag says whether its interval means anything."""
    ordered = sorted(differences.items(), key=lambda item: -item[1][0].value)
    names = short_names([env for env, _ in ordered])
    entries: list[Entry] = []
    for env, (interval, sure) in ordered:
        decided = sure and (interval.low > 0 or interval.high < 0)
        shade = colour(ours if interval.value > 0 else theirs) if decided else "@muted"
        drawn = interval if sure else Interval(interval.value, interval.value, interval.value)
        trace = _dot(drawn, names[env], shade, env)
        trace["marker"]["symbol"] = "circle" if decided else "circle-open"
        entries.append(entry(trace, None))
    # The line of no difference is always in view.
    axis = titled(x_title, rangemode="tozero", zeroline=True, zerolinecolor="@text", zerolinewidth=1.5)
    return _row_figure(entries, axis, len(entries))


def improvement_over_size(
    points: Mapping[str, Sequence[tuple[float, Interval, str]]], samples: str, y_title: str
) -> Figure:
    """Network -> (largest batch, improvement, what was compared); one line per network."""
    entries: list[Entry] = []
    for number, (network, row) in enumerate(points.items()):
        batches, intervals, compared = zip(*row, strict=True)
        trace = scatter(
            "lines+markers",
            list(batches),
            rounded(interval.value for interval in intervals),
            name=plotly_text(network),
            showlegend=True,
            error_y=error_bars(intervals, colour(number)),
            line=line_style(number),
            marker={"size": 9, "color": colour(number)},
            text=[plotly_text(what) for what in compared],
            hovertemplate="%{text}<br>batch up to %{x:,}: %{y:+.3~f}<extra>" + plotly_text(network) + "</extra>",
        )
        entries.append(entry(trace, None))
    ticks = sorted({batch for row in points.values() for batch, _, _ in row})
    texts = [f"{batch:,.0f}" for batch in ticks]
    layout = {
        "xaxis": titled(f"largest batch ({samples})", type="log", tickvals=ticks, ticktext=texts),
        "yaxis": titled(y_title, zeroline=True, zerolinecolor="@text"),
        "showlegend": True,
    }
    return Figure(entries, layout, 340)


def score_over_gradient_steps(
    points: Mapping[str, Sequence[tuple[float, float, str]]], labels: Sequence[str], x_title: str, y_title: str
) -> Figure:
    """Label -> (gradient steps, score, name of the run); one dot a run. `x_title` says what those steps are called."""
    entries: list[Entry] = []
    for label, row in points.items():
        variant = labels.index(label)
        steps, scores, names = zip(*row, strict=True)
        trace = scatter(
            "markers",
            list(steps),
            rounded(scores),
            text=[plotly_text(name) for name in names],
            marker={"color": colour(variant, 0.8), "size": 9, "symbol": SYMBOLS[variant % len(SYMBOLS)]},
            hovertemplate=f"%{{text}}<br>%{{x:,}} {x_title}<br>score %{{y:.4~g}}<extra>{plotly_text(label)}</extra>",
        )
        entries.append(entry(trace, variant))
    all_steps = [steps for row in points.values() for steps, _, _ in row]
    wide = max(all_steps) > 20 * max(1.0, min(all_steps))
    scale = log_axis(max(1.0, min(all_steps)), max(all_steps)) if wide else {"rangemode": "tozero"}
    axis = titled(x_title, **scale)
    return Figure(entries, {"xaxis": axis, "yaxis": titled(y_title)}, 340)


def time_per_phase(
    seconds: Mapping[str, Mapping[str, float]], phases: Sequence[str], labels: Sequence[str], x_title: str
) -> Figure:
    """Stacked seconds per variant."""
    names = short_names(labels)
    entries: list[Entry] = []
    for phase in (*phases, OTHER):
        for label, spent in seconds.items():
            trace = {
                "type": "bar",
                "orientation": "h",
                "name": phase,
                "legendgroup": phase,
                "x": rounded([spent.get(phase, 0.0)]),
                "y": [plotly_text(names[label])],
                "marker": {"color": f"@p{PHASE_COLOURS[phase]}"},
                "hovertemplate": "%{x:.3~g} s<extra>" + phase + "</extra>",
            }
            entries.append(entry(trace, labels.index(label)))
    figure = _row_figure(entries, titled(x_title), len(seconds))
    layout = {**figure.layout, "barmode": "stack", "bargap": 0.35, "showlegend": True}
    return Figure(entries, layout, figure.height + 40)


def _row_figure(entries: list[Entry], x_axis: dict[str, Any], rows: int) -> Figure:
    """A figure with a name for each row in place of a y axis."""
    y_axis = {"type": "category", "autorange": "reversed", "automargin": True}
    return Figure(entries, {"xaxis": x_axis, "yaxis": y_axis}, 80 + 30 * max(1, rows))


def _dot(interval: Interval, row: str, shade: str, name: str) -> dict[str, Any]:
    bounds = f" [{interval.low:.4g}, {interval.high:.4g}]" if interval.high > interval.low else ""
    return scatter(
        "markers",
        rounded([interval.value]),
        [plotly_text(row)],
        error_x=error_bars([interval], shade),
        marker={"size": 10, "color": shade},
        hovertemplate=f"{interval.value:.4g}{bounds}<extra>{plotly_text(name)}</extra>",
    )


def error_bars(intervals: Sequence[Interval], shade: str) -> dict[str, Any]:
    """From the values to the bounds of their intervals."""
    return {
        "type": "data",
        "symmetric": False,
        "array": rounded(interval.high - interval.value for interval in intervals),
        "arrayminus": rounded(interval.value - interval.low for interval in intervals),
        "color": shade,
        "thickness": 2.5,
        "width": 0,
    }
