"""Figures of a report as plain dicts that plotly.js draws; plotly itself is not imported.

An entry is a trace with what the page needs to show or hide it: the variant it belongs to, the x axis it is drawn over,
and the band around it. Colours are names such as `@v0` that the page replaces by those of its theme. Names of variants
and envs are escaped here, because plotly reads a little HTML and `%{…}` in its texts.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swell.display.sinks import PHASES
from swell.report.records import RunRecord
from swell.report.run_log import RunLog
from swell.report.scoring import Scores
from swell.report.stats import Curve, Interval, align, bootstrap_band, common_grid, curve_band, performance_profile

Array = NDArray[np.float64]
Axis = Literal["env_steps", "wall_seconds", "gradient_steps"]
AXES: dict[Axis, str] = {"env_steps": "env steps", "wall_seconds": "wall-clock", "gradient_steps": "gradient steps"}

COLOURS = 8
"""Colours of variants on the page, `@v0` to `@v7`."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
POINTS = 120
"""Points of a curve: more than its pixels would be wasted."""
RESAMPLES = 500
"""Of the bands around curves, which need fewer than numbers in a table."""
NAME_LENGTH = 26
OTHER = "other"
"""Time that is in no phase: evaluation and checkpoints."""
LOG_SIGNALS = ("gradient_noise_scale", "kl_divergence")


@dataclass(frozen=True)
class Figure:
    """One plot."""

    entries: list[dict[str, Any]]
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
    for name in names:
        half = (length - 1) // 2
        cut = name if len(name) <= length else f"{name[:half]}…{name[-half:]}"
        while cut in short.values():
            cut += "′"
        short[name] = cut
    return short


def colour(variant: int, opacity: float = 1.0) -> str:
    """The name of a variant's colour."""
    return f"@v{variant % COLOURS}" if opacity == 1.0 else f"@v{variant % COLOURS}/{opacity:g}"


def dash(variant: int) -> str:
    """The line of a variant, so that colour is not all that tells it."""
    return DASHES[variant % len(DASHES)]


def curves_over_training(records: Sequence[RunRecord], labels: Sequence[str], env: str) -> Figure | None:
    """Return of training episodes over each of the x axes; the evaluations of a single run as dots."""
    entries: list[dict[str, Any]] = []
    unit, seconds = _time_unit(records, env)
    for variant, label in enumerate(labels):
        runs = _runs(records, env, label)
        for axis in AXES:
            scale = seconds if axis == "wall_seconds" else 1.0
            curves = [_curve(getattr(run.log, axis) / scale, run.log.episode_return) for run in runs]
            entries += _band_entries(_drawable(curves), variant, label, axis)
        if len(runs) == 1:
            entries += _evaluations(runs[0].log, variant, label)
    if not entries:
        return None
    titles = {**AXES, "wall_seconds": f"wall-clock ({unit})"}
    return Figure(entries, {"axis_titles": titles, "yaxis": {"title": {"text": "return"}}, "hovermode": "x unified"})


def horizon_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str) -> Figure | None:
    """The planned horizon over env steps."""
    entries: list[dict[str, Any]] = []
    for variant, label in enumerate(labels):
        curves = [_curve(run.log.env_steps, run.log.horizon) for run in _runs(records, env, label)]
        entries += _band_entries(_drawable(curves), variant, label)
    layout = _over_env_steps("horizon (steps per env)")
    layout["yaxis"]["rangemode"] = "tozero"
    return Figure(entries, layout) if entries else None


def reading_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str, signal: str) -> Figure | None:
    """Readings of one signal over env steps."""
    entries: list[dict[str, Any]] = []
    for variant, label in enumerate(labels):
        runs = [run for run in _runs(records, env, label) if run.log.signal == signal and run.log.readings.size]
        curves = [_curve(run.log.reading_env_steps, run.log.readings) for run in runs]
        if len(runs) == 1:
            entries.append(_readings_of_one(runs[0].log, variant, label))
        else:
            entries += _band_entries(curves, variant, label)
    layout = _over_env_steps(plotly_text(signal.replace("_", " ")))
    layout["yaxis"] |= {"type": "log", "dtick": "D2"} if signal in LOG_SIGNALS else {"rangemode": "tozero"}
    return Figure(entries, layout) if entries else None


def interval_dots(intervals: Mapping[str, Interval], labels: Sequence[str], x_title: str) -> Figure:
    """A dot and an interval per variant."""
    names = short_names(labels)
    entries = [
        _entry(_dot(interval, plotly_text(names[label]), colour(labels.index(label))), labels.index(label))
        for label, interval in intervals.items()
    ]
    layout = {"xaxis": {"title": {"text": x_title}}, "yaxis": _categories()}
    return Figure(entries, layout, _rows_height(len(intervals)))


def score_dots(scores: Mapping[str, Scores], labels: Sequence[str], env: str, x_title: str) -> Figure:
    """Every run of one env as a dot."""
    names = short_names(labels)
    entries: list[dict[str, Any]] = []
    for variant, label in enumerate(labels):
        values = scores.get(label, {}).get(env, [])
        if values:
            trace = {
                "type": "scatter",
                "mode": "markers",
                "x": rounded(values),
                "y": [plotly_text(names[label])] * len(values),
                "marker": {"color": colour(variant, 0.75), "size": 9, "symbol": "circle-open", "line": {"width": 2}},
                "hovertemplate": "%{x:.4~g}<extra>" + plotly_text(label) + "</extra>",
            }
            entries.append(_entry(trace, variant))
    layout = {"xaxis": {"title": {"text": x_title}}, "yaxis": _categories()}
    return Figure(entries, layout, _rows_height(len(entries)))


def profile(scores: Mapping[str, Scores], labels: Sequence[str], x_title: str) -> Figure:
    """The share of runs above each score, with its interval."""
    pooled = [score for by_env in scores.values() for values in by_env.values() for score in values]
    low, high = min(0.0, min(pooled)), max(1.0, float(np.quantile(pooled, 0.98)))
    thresholds = np.linspace(low, high, POINTS + 1)
    entries: list[dict[str, Any]] = []
    for label, by_env in scores.items():
        share, lower, upper = _profile_band(by_env, thresholds)
        entries.append(_line_entry(thresholds, share, lower, upper, labels.index(label), label, None))
    layout = {
        "xaxis": {"title": {"text": x_title}, "hoverformat": ".2f"},
        "yaxis": {"title": {"text": "share of runs above"}, "range": [-0.02, 1.02]},
        "hovermode": "x unified",
    }
    return Figure(entries, layout, 330)


def improvement_per_env(
    differences: Mapping[str, tuple[Interval, bool]], ours: int, theirs: int, labels: Sequence[str], x_title: str
) -> Figure:
    """Difference of means per env, the largest first; the flag says whether its interval means anything."""
    ordered = sorted(differences.items(), key=lambda item: -item[1][0].value)
    names = short_names([env for env, _ in ordered])
    entries: list[dict[str, Any]] = []
    for env, (interval, sure) in ordered:
        decided = sure and (interval.low > 0 or interval.high < 0)
        shade = colour(ours if interval.value > 0 else theirs) if decided else "@muted"
        trace = _dot(interval if sure else Interval(interval.value, interval.value, interval.value), "", shade)
        trace["y"] = [plotly_text(names[env])]
        trace["marker"]["symbol"] = "circle" if decided else "circle-open"
        trace["hovertemplate"] = trace["hovertemplate"].replace("<extra></extra>", f"<extra>{plotly_text(env)}</extra>")
        entries.append(_entry(trace, None))
    layout = {
        "xaxis": {
            "title": {"text": x_title},
            "rangemode": "tozero",  # the line of no difference is always in view
            "zeroline": True,
            "zerolinecolor": "@text",
            "zerolinewidth": 1.5,
        },
        "yaxis": _categories(),
    }
    return Figure(entries, layout, _rows_height(len(entries)))


def probabilities(intervals: Mapping[str, Interval], labels: Sequence[str], title: str) -> Figure:
    """Probability of improvement over each rival, with the line of no difference."""
    figure = interval_dots(intervals, labels, title)
    line = {"type": "line", "x0": 0.5, "x1": 0.5, "yref": "paper", "y0": 0, "y1": 1}
    shapes = [{**line, "line": {"color": "@text", "width": 1, "dash": "dot"}}]
    axis = {"title": {"text": title}, "range": [-0.03, 1.03]}
    return Figure(figure.entries, {**figure.layout, "shapes": shapes, "xaxis": axis}, figure.height)


def improvement_over_size(points: Mapping[str, Sequence[tuple[float, Interval, str]]], y_title: str) -> Figure:
    """Network -> (largest batch, improvement, what was compared); one line per network."""
    entries: list[dict[str, Any]] = []
    for number, (network, row) in enumerate(points.items()):
        values = [interval for _, interval, _ in row]
        trace = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": plotly_text(network),
            "showlegend": True,
            "x": [batch for batch, _, _ in row],
            "y": rounded(interval.value for interval in values),
            "error_y": _error_bars(values, colour(number)),
            "line": {"color": colour(number), "dash": dash(number), "width": 2},
            "marker": {"size": 9, "color": colour(number)},
            "text": [plotly_text(what) for _, _, what in row],
            "hovertemplate": "%{text}<br>batch up to %{x:,}: %{y:+.3~f}<extra>" + plotly_text(network) + "</extra>",
        }
        entries.append(_entry(trace, None))
    batches = sorted({batch for row in points.values() for batch, _, _ in row})
    layout = {
        "xaxis": {
            "title": {"text": "largest batch (samples)"},
            "type": "log",
            "tickvals": batches,
            "ticktext": [f"{batch:,.0f}" for batch in batches],
        },
        "yaxis": {"title": {"text": y_title}, "zeroline": True, "zerolinecolor": "@text"},
        "showlegend": True,
    }
    return Figure(entries, layout, 340)


def time_per_phase(seconds: Mapping[str, Mapping[str, float]], labels: Sequence[str], x_title: str) -> Figure:
    """Stacked seconds per variant."""
    names = short_names(labels)
    entries: list[dict[str, Any]] = []
    for number, phase in enumerate((*PHASES, OTHER)):
        for label, phases in seconds.items():
            trace = {
                "type": "bar",
                "orientation": "h",
                "name": phase,
                "legendgroup": phase,
                "x": rounded([phases.get(phase, 0.0)]),
                "y": [plotly_text(names[label])],
                "marker": {"color": f"@p{number}"},
                "hovertemplate": "%{x:.3~g} s<extra>" + phase + "</extra>",
            }
            entries.append(_entry(trace, labels.index(label)))
    layout = {
        "barmode": "stack",
        "bargap": 0.35,
        "xaxis": {"title": {"text": x_title}},
        "yaxis": _categories(),
        "showlegend": True,
    }
    return Figure(entries, layout, _rows_height(len(seconds)) + 40)


def score_over_gradient_steps(
    points: Mapping[str, Sequence[tuple[float, float, str]]], labels: Sequence[str], y_title: str
) -> Figure:
    """Label -> (gradient steps, score, name of the run); one dot a run."""
    symbols = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
    entries: list[dict[str, Any]] = []
    for label, row in points.items():
        variant = labels.index(label)
        trace = {
            "type": "scatter",
            "mode": "markers",
            "x": [steps for steps, _, _ in row],
            "y": rounded(score for _, score, _ in row),
            "text": [plotly_text(name) for _, _, name in row],
            "marker": {"color": colour(variant, 0.8), "size": 9, "symbol": symbols[variant % len(symbols)]},
            "hovertemplate": "%{text}<br>%{x:,} gradient steps<br>score %{y:.4~g}"
            + f"<extra>{plotly_text(label)}</extra>",
        }
        entries.append(_entry(trace, variant))
    all_steps = [steps for row in points.values() for steps, _, _ in row]
    wide = max(all_steps) > 20 * max(1.0, min(all_steps))
    axis = {"title": {"text": "gradient steps"}, **({"type": "log"} if wide else {"rangemode": "tozero"})}
    return Figure(entries, {"xaxis": axis, "yaxis": {"title": {"text": y_title}}}, 340)


def rounded(values: Iterable[float]) -> list[float | None]:
    """Four digits, which is what a plot can show; None for what is not finite."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def _runs(records: Sequence[RunRecord], env: str, label: str) -> list[RunRecord]:
    return [record for record in records if record.env == env and record.label == label]


def _curve(x: Array, y: Array) -> Curve:
    known = np.isfinite(x) & np.isfinite(y)
    return x[known], y[known]


def _drawable(curves: Sequence[Curve]) -> list[Curve]:
    return [(x, y) for x, y in curves if len(np.atleast_1d(x)) > 0]


def _band_entries(curves: Sequence[Curve], variant: int, label: str, axis: Axis | None = None) -> list[dict[str, Any]]:
    if not curves:
        return []
    grid = common_grid(curves, POINTS)
    if len(curves) == 1:
        mean = align(curves, grid)[0]
        return [_line_entry(grid, mean, mean, mean, variant, label, axis)]
    mean, low, high = curve_band(curves, grid, resamples=RESAMPLES)
    return [_line_entry(grid, mean, low, high, variant, f"{label}, {len(curves)} runs", axis)]


def _line_entry(
    grid: Array, mean: Array, low: Array, high: Array, variant: int, name: str, axis: Axis | None
) -> dict[str, Any]:
    step = float(grid[1] - grid[0])
    single = bool(np.array_equal(low, high, equal_nan=True))
    trace = {
        "type": "scatter",
        "mode": "lines" if step > 0 else "markers",
        "name": plotly_text(name),
        "x0": float(grid[0]),
        "dx": step,
        "y": rounded(mean),
        "line": {"color": colour(variant), "dash": dash(variant), "width": 2},
    }
    entry = _entry(trace, variant, axis)
    if not single:
        entry["band"] = {"low": rounded(low), "high": rounded(high), "fill": colour(variant, 0.15)}
    return entry


def _evaluations(log: RunLog, variant: int, label: str) -> list[dict[str, Any]]:
    if not log.evaluation_env_steps.size:
        return []
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": plotly_text(f"{label}, greedy evaluation"),
        "x": log.evaluation_env_steps.tolist(),
        "y": rounded(log.evaluation_returns),
        "marker": {"color": colour(variant), "size": 8, "symbol": "diamond"},
    }
    return [_entry(trace, variant, "env_steps")]


def _readings_of_one(log: RunLog, variant: int, label: str) -> dict[str, Any]:
    """Each reading as it was: there are few, and none between them."""
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if log.readings.size <= POINTS // 2 else "lines",
        "name": plotly_text(label),
        "x": log.reading_env_steps.tolist(),
        "y": rounded(log.readings),
        "line": {"color": colour(variant), "dash": dash(variant), "width": 2},
        "marker": {"size": 6},
    }
    return _entry(trace, variant)


def _dot(interval: Interval, category: str, shade: str) -> dict[str, Any]:
    wide = interval.high > interval.low
    bounds = f" [{_short(interval.low)}, {_short(interval.high)}]" if wide else ""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rounded([interval.value]),
        "y": [category],
        "error_x": _error_bars([interval], shade),
        "marker": {"size": 10, "color": shade},
        "hovertemplate": f"{_short(interval.value)}{bounds}<extra></extra>",
    }


def _error_bars(intervals: Sequence[Interval], shade: str) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": rounded(interval.high - interval.value for interval in intervals),
        "arrayminus": rounded(interval.value - interval.low for interval in intervals),
        "color": shade,
        "thickness": 2.5,
        "width": 0,
    }


def _entry(trace: dict[str, Any], variant: int | None, axis: Axis | None = None) -> dict[str, Any]:
    return {"variant": variant, "axis": axis, "trace": trace}


def _profile_band(by_env: Scores, thresholds: Array) -> tuple[Array, Array, Array]:
    def statistic(scores: Scores) -> Array:
        return performance_profile(scores, thresholds)

    return bootstrap_band(statistic, by_env, resamples=RESAMPLES)


def _categories() -> dict[str, Any]:
    return {"type": "category", "autorange": "reversed", "automargin": True}


def _over_env_steps(y_title: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "env steps"}, "hoverformat": ",.0f"},
        "yaxis": {"title": {"text": y_title}},
        "hovermode": "x unified",
    }


def _rows_height(rows: int) -> int:
    return 80 + 30 * max(1, rows)


def _time_unit(records: Sequence[RunRecord], env: str) -> tuple[str, float]:
    longest = max((record.wall_seconds or 0.0 for record in records if record.env == env), default=0.0)
    if longest > 3 * 3600:
        return "hours", 3600.0
    return ("minutes", 60.0) if longest > 180 else ("seconds", 1.0)


def _short(value: float) -> str:
    return f"{value:.4g}"
