"""Figures with lines and the bands around them: quantities over training by variant, and the performance profile."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swell.report.figures import Axis, Entry, Figure, colour, entry, line_style, plotly_text, rounded, scatter, titled
from swell.report.records import RunRecord
from swell.report.scoring import Scores
from swell.report.stats import align, bootstrap_band, common_grid, curve_band, performance_profile

Array = NDArray[np.float64]
AXES: dict[Axis, str] = {"env_steps": "env steps", "wall_seconds": "wall-clock", "gradient_steps": "gradient steps"}
POINTS = 120
"""Points of a curve: more than its pixels would be wasted."""
RESAMPLES = 500
"""Of the bands around curves, which need fewer than numbers in a table."""
LOG_SIGNALS = ("gradient_noise_scale", "kl_divergence")
"""Signals whose readings span orders of magnitude."""


def return_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str) -> Figure | None:
    """Return of training episodes over each of the x axes; the evaluations of a single run as diamonds."""
    unit, seconds = _time_unit(records, env)
    entries: list[Entry] = []
    for variant, label in enumerate(labels):
        runs = _runs(records, env, label)
        for axis in AXES:
            scale = seconds if axis == "wall_seconds" else 1.0
            curves = [(getattr(run.log, axis) / scale, run.log.episode_return) for run in runs]
            entries += _band(curves, variant, label, axis)
        if len(runs) == 1 and runs[0].log.evaluation_env_steps.size:
            trace = scatter(
                "markers",
                runs[0].log.evaluation_env_steps.tolist(),
                rounded(runs[0].log.evaluation_returns),
                name=plotly_text(f"{label}, greedy evaluation"),
                marker={"color": colour(variant), "size": 8, "symbol": "diamond"},
            )
            entries.append(entry(trace, variant, "env_steps"))
    titles = {**AXES, "wall_seconds": f"wall-clock ({unit})"}
    layout = {"axis_titles": titles, "yaxis": titled("return"), "hovermode": "x unified"}
    return Figure(entries, layout) if entries else None


def horizon_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str) -> Figure | None:
    """The planned horizon over env steps."""
    entries: list[Entry] = []
    for variant, label in enumerate(labels):
        curves = [(run.log.env_steps, run.log.horizon) for run in _runs(records, env, label)]
        entries += _band(curves, variant, label)
    return _over_env_steps(entries, titled("horizon (steps per env)", rangemode="tozero"))


def reading_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str, signal: str) -> Figure | None:
    """Readings of one signal over env steps."""
    entries: list[Entry] = []
    for variant, label in enumerate(labels):
        logs = [run.log for run in _runs(records, env, label) if run.log.signal == signal and run.log.readings.size]
        if len(logs) == 1:  # each reading as it was: there are few, and none between them
            trace = scatter(
                "lines+markers" if logs[0].readings.size <= POINTS // 2 else "lines",
                logs[0].reading_env_steps.tolist(),
                rounded(logs[0].readings),
                name=plotly_text(label),
                line=line_style(variant),
                marker={"size": 6},
            )
            entries.append(entry(trace, variant))
        else:
            entries += _band([(log.reading_env_steps, log.readings) for log in logs], variant, label)
    style = {"type": "log", "dtick": "D2"} if signal in LOG_SIGNALS else {"rangemode": "tozero"}
    return _over_env_steps(entries, titled(plotly_text(signal.replace("_", " ")), **style))


def profile(scores: Mapping[str, Scores], labels: Sequence[str], x_title: str) -> Figure:
    """The share of runs above each score, with its interval."""
    pooled = [score for by_env in scores.values() for values in by_env.values() for score in values]
    low, high = min(0.0, min(pooled)), max(1.0, float(np.quantile(pooled, 0.98)))
    thresholds = np.linspace(low, high, POINTS + 1)

    def statistic(by_env: Scores) -> Array:
        return performance_profile(by_env, thresholds)

    entries: list[Entry] = []
    for label, by_env in scores.items():
        share, lower, upper = bootstrap_band(statistic, by_env, resamples=RESAMPLES)
        entries.append(_line_with_band(thresholds, share, lower, upper, labels.index(label), label))
    layout = {
        "xaxis": titled(x_title, hoverformat=".2f"),
        "yaxis": titled("share of runs above", range=[-0.02, 1.02]),
        "hovermode": "x unified",
    }
    return Figure(entries, layout, 330)


def _runs(records: Sequence[RunRecord], env: str, label: str) -> list[RunRecord]:
    return [record for record in records if record.env == env and record.label == label]


def _time_unit(records: Sequence[RunRecord], env: str) -> tuple[str, float]:
    longest = max((record.wall_seconds or 0.0 for record in records if record.env == env), default=0.0)
    if longest > 3 * 3600:
        return "hours", 3600.0
    return ("minutes", 60.0) if longest > 180 else ("seconds", 1.0)


def _over_env_steps(entries: list[Entry], y_axis: dict[str, Any]) -> Figure | None:
    x_axis = titled("env steps", hoverformat=",.0f")
    return Figure(entries, {"xaxis": x_axis, "yaxis": y_axis, "hovermode": "x unified"}) if entries else None


def _band(curves: Sequence[tuple[Array, Array]], variant: int, label: str, axis: Axis | None = None) -> list[Entry]:
    """The mean of the runs' curves with its interval, the curve itself of a single run, or nothing."""
    known = [(x[finite], y[finite]) for x, y in curves for finite in [np.isfinite(x) & np.isfinite(y)] if finite.any()]
    if not known:
        return []
    grid = common_grid(known, POINTS)
    if len(known) == 1:
        mean = align(known, grid)[0]
        return [_line_with_band(grid, mean, mean, mean, variant, label, axis)]
    mean, low, high = curve_band(known, grid, resamples=RESAMPLES)
    return [_line_with_band(grid, mean, low, high, variant, f"{label}, {len(known)} runs", axis)]


def _line_with_band(
    grid: Array, mean: Array, low: Array, high: Array, variant: int, name: str, axis: Axis | None = None
) -> Entry:
    """A line over an even grid; without a band where that has no width."""
    step = float(grid[1] - grid[0])
    trace = {
        "type": "scatter",
        "mode": "lines" if step > 0 else "markers",
        "name": plotly_text(name),
        "x0": float(grid[0]),
        "dx": step,
        "y": rounded(mean),
        "line": line_style(variant),
    }
    drawn = entry(trace, variant, axis)
    if not np.array_equal(low, high, equal_nan=True):
        drawn["band"] = {"low": rounded(low), "high": rounded(high), "fill": colour(variant, 0.15)}
    return drawn
