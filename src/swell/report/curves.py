"""Figures with lines and the bands around them: quantities over training by variant, and the performance profile."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swell.report.figures import (
    Axis,
    Entry,
    Figure,
    colour,
    entry,
    line_style,
    log_axis,
    plotly_text,
    rounded,
    scatter,
    titled,
)
from swell.report.records import RunRecord, kinds_of
from swell.report.scoring import Scores
from swell.report.stats import align, bootstrap_band, common_grid, curve_band, performance_profile
from swell.report.words import ENV_RUN, Kind, Words

Array = NDArray[np.float64]
POINTS = 120
"""Points of a curve: more than its pixels would be wasted."""
SAME_END = 0.05
"""Runs that end within this share of the longest one's length are meant to be equally long."""
RESAMPLES = 500
"""Of the bands around curves, which need fewer than numbers in a table."""
LOG_SIGNALS = ("gradient_noise_scale", "kl_divergence")
"""Signals whose readings span orders of magnitude."""

SIGNAL_NAMES = {"kl_divergence": "KL divergence"}


def signal_name(signal: str) -> str:
    """A signal as the page calls it."""
    return SIGNAL_NAMES.get(signal, signal.replace("_", " "))


def time_unit(longest: float) -> tuple[str, float]:
    """A unit for an axis that ends at so many seconds, and its own length in seconds."""
    if longest > 3 * 3600:
        return "hours", 3600.0
    return ("minutes", 60.0) if longest > 180 else ("seconds", 1.0)


def kind_of(records: Sequence[RunRecord], env: str) -> Kind:
    """The kind of the runs on an env."""
    return next(iter(kinds_of(record for record in records if record.env == env)), ENV_RUN)


def axes(words: Words) -> dict[Axis, str]:
    """The x axes of learning curves and what they are called, the first shown first."""
    return {"clock": words.clock, "wall_seconds": "wall-clock", "gradient_steps": words.updates}


def score_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str) -> Figure | None:
    """Scores of training over each of the x axes; the evaluations of a single run as diamonds."""
    kind = kind_of(records, env)
    titles = axes(kind.words)
    unit, seconds = time_unit(max((run.wall_seconds or 0.0 for run in records if run.env == env), default=0.0))
    entries: list[Entry] = []
    for variant, label in enumerate(labels):
        runs = _runs(records, env, label)
        for axis in titles:
            scale = seconds if axis == "wall_seconds" else 1.0
            curves = [(getattr(run.log, axis) / scale, run.log.score) for run in runs]
            entries += _band(curves, variant, label, axis)
        if len(runs) == 1 and runs[0].log.evaluation_clock.size:
            trace = scatter(
                "markers",
                runs[0].log.evaluation_clock.tolist(),
                rounded(runs[0].log.evaluation_scores),
                name=plotly_text(f"{label}, {kind.evaluation}"),
                marker={"color": colour(variant), "size": 8, "symbol": "diamond"},
            )
            entries.append(entry(trace, variant, "clock"))
    titles["wall_seconds"] += f" ({unit})"
    layout = {"axis_titles": titles, "yaxis": titled(kind.score), "hovermode": "x unified"}
    return Figure(entries, layout) if entries else None


def batch_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str) -> Figure | None:
    """The batch, or the horizon that makes it, over training."""
    kind = kind_of(records, env)
    y_axis = titled(f"{kind.words.batch} ({kind.batch_unit})", rangemode="tozero")
    return _over_the_clock(_bands(records, labels, env, "batch"), kind, y_axis)


def ess_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str) -> Figure | None:
    """The effective sample size over training, of the runs that have one."""
    y_axis = titled("effective sample size (share)")
    return _over_the_clock(_bands(records, labels, env, "ess"), kind_of(records, env), y_axis)


def reading_curves(records: Sequence[RunRecord], labels: Sequence[str], env: str, signal: str) -> Figure | None:
    """Readings of one signal over training."""
    entries: list[Entry] = []
    lowest, highest = math.inf, -math.inf
    for variant, label in enumerate(labels):
        logs = [run.log for run in _runs(records, env, label) if run.log.signal == signal and run.log.readings.size]
        lowest = min([lowest, *(float(log.readings.min()) for log in logs)])
        highest = max([highest, *(float(log.readings.max()) for log in logs)])
        if len(logs) == 1:  # each reading as it was: there are few, and none between them
            trace = scatter(
                "lines+markers" if logs[0].readings.size <= POINTS // 2 else "lines",
                logs[0].reading_clock.tolist(),
                rounded(logs[0].readings),
                name=plotly_text(label),
                line=line_style(variant),
                marker={"size": 6},
            )
            entries.append(entry(trace, variant))
        else:
            entries += _band([(log.reading_clock, log.readings) for log in logs], variant, label)
    logarithmic = signal in LOG_SIGNALS and 0 < lowest < math.inf  # a logarithm would hide a reading of 0
    style = log_axis(lowest, highest) if logarithmic else {"rangemode": "tozero"}
    return _over_the_clock(entries, kind_of(records, env), titled(plotly_text(signal_name(signal)), **style))


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


def _over_the_clock(entries: list[Entry], kind: Kind, y_axis: dict[str, Any]) -> Figure | None:
    x_axis = titled(kind.words.clock, hoverformat=",.0f")
    return Figure(entries, {"xaxis": x_axis, "yaxis": y_axis, "hovermode": "x unified"}) if entries else None


def _bands(
    records: Sequence[RunRecord], labels: Sequence[str], env: str, quantity: Literal["batch", "ess"]
) -> list[Entry]:
    """A quantity of the logs over the clock, by variant."""
    entries: list[Entry] = []
    for variant, label in enumerate(labels):
        curves = [(run.log.clock, getattr(run.log, quantity)) for run in _runs(records, env, label)]
        entries += _band(curves, variant, label)
    return entries


def _band(curves: Sequence[tuple[Array, Array]], variant: int, label: str, axis: Axis | None = None) -> list[Entry]:
    """The mean of the runs' curves with its interval, the curve itself of a single run, or nothing."""
    known = [(x[finite], y[finite]) for x, y in curves for finite in [np.isfinite(x) & np.isfinite(y)] if finite.any()]
    if not known:
        return []
    grid = common_grid(_ended_together(known), POINTS)
    if len(known) == 1:
        mean = align(known, grid)[0]
        return [_line_with_band(grid, mean, mean, mean, variant, label, axis)]
    mean, low, high = curve_band(known, grid, resamples=RESAMPLES)
    return [_line_with_band(grid, mean, low, high, variant, f"{label}, {len(known)} runs", axis)]


def _ended_together(curves: list[tuple[Array, Array]]) -> list[tuple[Array, Array]]:
    """Curves cut where the first of those ends that go to the end, give or take a rollout.

    Otherwise the last point of a mean would be that of the one run whose last rollout was the longest.
    """
    last = max(x[-1] for x, _ in curves)
    start = min(x[0] for x, _ in curves)
    shared = min(x[-1] for x, _ in curves if x[-1] >= last - SAME_END * (last - start))
    return [(np.minimum(x, shared), y) for x, y in curves]


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
