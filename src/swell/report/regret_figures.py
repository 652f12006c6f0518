"""Figures of regret: variants between the best and the worst fixed horizon, over the length of runs, and fronts."""

from collections.abc import Mapping, Sequence
from typing import Any

from swell.report.figures import (
    SYMBOLS,
    Entry,
    Figure,
    colour,
    entry,
    error_bars,
    line_style,
    log_axis,
    plotly_text,
    rounded,
    scatter,
    short_names,
    titled,
)
from swell.report.regret import undominated
from swell.report.stats import Interval

APART = 0.17
"""How far the first and the second way to count stand above and below the middle of a row."""
X_TITLE = "regret (0 the best fixed {batch}, 1 the worst)"


def regret_dots(forms: Mapping[str, Mapping[str, Interval]], labels: Sequence[str], batch: str) -> Figure:
    """A row for each variant, a dot and an interval for each form of regret: filled the first, open the second."""
    present = [label for label in labels if any(label in intervals for intervals in forms.values())]
    entries: list[Entry] = []
    for number, (form, intervals) in enumerate(forms.items()):
        for label, interval in intervals.items():
            shade = colour(labels.index(label))
            marker = {"size": 10, "color": shade, "symbol": ("circle", "circle-open")[number]}
            trace = scatter(
                "markers",
                rounded([interval.value]),
                [present.index(label) + (2 * number - 1) * APART],
                name=plotly_text(form),
                error_x=error_bars([interval], shade),
                marker={**marker, "line": {"width": 2, "color": shade}},
                hovertemplate=_told(interval) + f"<br>{plotly_text(form)}<extra>{plotly_text(label)}</extra>",
            )
            entries.append(entry(trace, labels.index(label)))
    names = short_names(present)
    rows = {
        "tickvals": list(range(len(present))),
        "ticktext": [plotly_text(names[label]) for label in present],
        "range": [len(present) - 0.5, -0.5],
        "automargin": True,
    }
    layout = {
        "xaxis": titled(X_TITLE.format(batch=batch), rangemode="tozero", zeroline=False),
        "yaxis": rows,
        "shapes": [_line("x", value) for value in (0, 1)],
    }
    return Figure(entries, layout, 80 + 38 * len(present))


def regret_over_length(
    shares: Sequence[float], intervals: Mapping[str, Sequence[Interval | None]], labels: Sequence[str], length: str
) -> Figure:
    """A line for each variant over the share of a run's length at which it is stopped, as far as that is known."""
    entries: list[Entry] = []
    percent = [100 * share for share in shares]
    for label, row in intervals.items():
        variant = labels.index(label)
        known = [(x, interval) for x, interval in zip(percent, row, strict=True) if interval is not None]
        if not known:
            continue
        trace = scatter(
            "lines+markers",
            [x for x, _ in known],
            rounded(interval.value for _, interval in known),
            name=plotly_text(label),
            line=line_style(variant),
            marker={"size": 8, "color": colour(variant), "symbol": SYMBOLS[variant % len(SYMBOLS)]},
            error_y={**error_bars([interval for _, interval in known], colour(variant, 0.45)), "thickness": 1.5},
            text=[_told(interval) for _, interval in known],
            hovertemplate="%{text}<br>after %{x:.0f} %<extra>" + plotly_text(label) + "</extra>",
        )
        entries.append(entry(trace, variant))
    texts = [f"{x:.0f} %" for x in percent]
    layout = {
        "xaxis": titled(f"share of the {length}", type="log", tickvals=percent, ticktext=texts),
        "yaxis": titled("regret", rangemode="tozero", zeroline=False),
        "shapes": [_line("y", value) for value in (0, 1)],
    }
    return Figure(entries, layout, 300)


def front(points: Mapping[str, tuple[float, Interval]], labels: Sequence[str], x_title: str, y_title: str) -> Figure:
    """Label -> (cost, score); the dotted steps are the front: the best score that can be had for no more."""
    names, costs = list(points), [cost for cost, _ in points.values()]
    scores = [score.value for _, score in points.values()]
    entries: list[Entry] = []
    ahead = undominated(costs, scores)
    if len(ahead) > 1:
        steps = {"color": "@muted", "width": 1.5, "dash": "dot", "shape": "hv"}
        x, y = [costs[at] for at in ahead], rounded(scores[at] for at in ahead)
        entries.append(entry(scatter("lines", x, y, name="front", line=steps, hoverinfo="skip"), None))
    for label, cost, (_, score) in zip(names, costs, points.values(), strict=True):
        variant = labels.index(label)
        trace = scatter(
            "markers",
            [cost],
            rounded([score.value]),
            name=plotly_text(label),
            error_y=error_bars([score], colour(variant, 0.6)),
            marker={"color": colour(variant), "size": 10, "symbol": SYMBOLS[variant % len(SYMBOLS)]},
            hovertemplate=_told(score) + f"<br>%{{x:.4~g}} {x_title}<extra>{plotly_text(label)}</extra>",
        )
        entries.append(entry(trace, variant))
    wide = min(costs) > 0 and max(costs) > 20 * min(costs)
    scale: dict[str, Any] = log_axis(min(costs), max(costs)) if wide else {"rangemode": "tozero"}
    return Figure(entries, {"xaxis": titled(x_title, **scale), "yaxis": titled(y_title)}, 300)


def _told(interval: Interval) -> str:
    bounds = f" [{interval.low:.3g}, {interval.high:.3g}]" if interval.high > interval.low else ""
    return f"{interval.value:.3g}{bounds}"


def _line(axis: str, value: float) -> dict[str, Any]:
    """Across the whole plot, where regret is 0 or 1."""
    other = "y" if axis == "x" else "x"
    ends = {f"{axis}0": value, f"{axis}1": value, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return {"type": "line", **ends, "line": {"color": "@text", "width": 1, "dash": "dot"}}
