"""Statistics of many runs: rliable's aggregates (arXiv 2108.13264), stratified bootstrap intervals, learning curves.

A statistic takes the scores of each env as [..., runs] and reduces the last axis, so one definition serves both plain
scores (a number) and thousands of resamples of them at once ([resamples]). Envs may differ in their number of runs.
What pools runs (interquartile mean, optimality gap, profile) counts each run once, so an env with more runs weighs
more; the mean and the median count each env once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Value = np.float64 | Array
"""A number for plain scores, [resamples] for resampled ones."""
Scores = Mapping[str, ArrayLike]
"""Env -> the scores of its runs, [..., runs]."""
Statistic = Callable[..., Value]
"""From the scores of one or more groups to a value."""
Curve = tuple[ArrayLike, ArrayLike]
"""The x of a run, which never falls (env steps, seconds, gradient steps), and its y at the same points."""
Band = tuple[Array, Array, Array]
"""Value, lower and upper bound at each point."""


@dataclass(frozen=True)
class Interval:
    """A value and the bounds of its confidence interval."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Scores) -> Value:
    """The mean of the middle half of all runs of all envs: of n runs, int(n / 4) are cut off at either end."""
    ordered = np.sort(_pooled(scores), axis=-1)
    runs = ordered.shape[-1]
    return ordered[..., runs // 4 : runs - runs // 4].mean(axis=-1)


def mean_score(scores: Scores) -> Value:
    """The mean over envs of the mean of an env."""
    return _env_means(scores).mean(axis=-1)


def difference_of_means(x: Scores, y: Scores) -> Value:
    """How far the mean score of x is above that of y."""
    return mean_score(x) - mean_score(y)


def median_score(scores: Scores) -> Value:
    """The median over envs of the mean of an env."""
    return np.median(_env_means(scores), axis=-1)


def optimality_gap(scores: Scores, gamma: float = 1.0) -> Value:
    """γ − mean(min(score, γ)) over all runs: how far they stay below γ, with no credit for going beyond."""
    return gamma - np.minimum(_pooled(scores), gamma).mean(axis=-1)


def performance_profile(scores: Scores, thresholds: ArrayLike) -> Array:
    """P(score > τ), the share of all runs above each threshold τ; [..., thresholds]."""
    ordered = np.sort(_pooled(scores), axis=-1)
    runs = ordered.shape[-1]
    at_most = np.apply_along_axis(np.searchsorted, -1, ordered, np.asarray(thresholds), side="right")
    return (runs - at_most) / runs


def probability_of_improvement(x: Scores, y: Scores) -> Value:
    """P(X > Y) + ½ P(X = Y) of a run of X against one of Y, per env, averaged over the envs that both have.

    Per env it is the Mann-Whitney U over the number of pairs.
    """
    shared = sorted(x.keys() & y.keys())
    if not shared:
        raise ValueError("the two groups have no env in common")
    ours, theirs = _checked({env: x[env] for env in shared}), _checked({env: y[env] for env in shared})
    return np.mean([_share_of_pairs_won(ours[env], theirs[env]) for env in shared], axis=0)


def bootstrap(
    statistic: Statistic, *groups: Scores, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """A statistic of one or more groups of scores and its percentile interval over `resampled` runs."""
    value, low, high = bootstrap_band(statistic, *groups, confidence=confidence, resamples=resamples, seed=seed)
    return Interval(float(value), float(low), float(high))


def bootstrap_band(
    statistic: Statistic, *groups: Scores, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Band:
    """As `bootstrap`, for a statistic with values at many points, such as a performance profile."""
    value = np.asarray(statistic(*groups))
    generator = np.random.default_rng(seed)
    draws = statistic(*(resampled(scores, generator, resamples) for scores in groups))
    return value, *_bounds(np.asarray(draws), confidence)


def bootstrap_mean(values: ArrayLike, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """The mean of the runs of one env."""
    return bootstrap(mean_score, {"runs": values}, confidence=confidence, resamples=resamples, seed=seed)


def bootstrap_difference(
    x: ArrayLike, y: ArrayLike, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """mean(x) − mean(y) of two groups of runs of one env, each resampled by itself."""
    groups = {"x": x}, {"y": y}
    return bootstrap(difference_of_means, *groups, confidence=confidence, resamples=resamples, seed=seed)


def resampled(scores: Scores, generator: np.random.Generator, resamples: int) -> dict[str, Array]:
    """As many runs again, drawn with replacement within each env, the envs fixed; [resamples, runs] per env."""
    draws: dict[str, Array] = {}
    for env, values in sorted(_checked(scores).items()):
        if values.ndim != 1:
            raise ValueError(f"{env} must have one score per run, got an array of shape {values.shape}")
        chosen = generator.integers(len(values), size=(resamples, len(values)))
        draws[env] = np.sort(values)[chosen]  # sorted, like the envs: the order of runs must not decide an interval
    return draws


def common_grid(curves: Sequence[Curve], points: int = 200) -> Array:
    """Evenly spaced x, from where the first run begins to where the longest ends."""
    xs = [x for x, _ in _checked_curves(curves)]
    return np.linspace(min(x[0] for x in xs), max(x[-1] for x in xs), points)


def align(curves: Sequence[Curve], grid: ArrayLike) -> Array:
    """Each run's y at the x of the grid, [runs, grid]: interpolated, NaN before its first point and after its last."""
    return np.stack([np.interp(np.asarray(grid), x, y, np.nan, np.nan) for x, y in _checked_curves(curves)])


def curve_band(
    curves: Sequence[Curve], grid: ArrayLike, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Band:
    """The mean curve and its pointwise percentile interval, at each x over the runs that reach it; NaN where none do.

    Where a run ends the mean may jump: it is a mean of fewer runs from there on.
    """
    ordered = np.sort(align(curves, grid), axis=0)  # puts the NaN of absent runs last, and the order of runs is gone
    present = np.count_nonzero(~np.isnan(ordered), axis=0)
    mean, low, high = np.full((3, ordered.shape[1]), np.nan)
    for runs in np.unique(present[present > 0]):
        points = present == runs
        values = ordered[:runs, points]
        counts = np.random.default_rng(seed).multinomial(runs, np.full(runs, 1 / runs), size=resamples)
        mean[points] = values.mean(axis=0)
        low[points], high[points] = _bounds(counts @ values / runs, confidence)
    return mean, low, high


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """The correlation of ranks, ties sharing their average rank; NaN below 3 points or if either is constant."""
    ours, theirs = (_ranks(values) for values in _checked({"x": x, "y": y}).values())
    if len(ours) != len(theirs):
        raise ValueError(f"x and y must be of the same length, got {len(ours)} and {len(theirs)}")
    if len(ours) < 3 or np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return float("nan")
    return float(np.corrcoef(ours, theirs)[0, 1])


def _checked(scores: Scores) -> dict[str, Array]:
    if not scores:
        raise ValueError("there are no scores: give at least one env")
    arrays = {env: np.asarray(values, dtype=np.float64) for env, values in scores.items()}
    for env, values in arrays.items():
        if values.ndim == 0 or values.size == 0:
            raise ValueError(f"{env} must have at least one value in a list, got {values}")
        if not np.isfinite(values).all():
            raise ValueError(f"{env} must have finite values only, got {values[~np.isfinite(values)][0]}")
    return arrays


def _checked_curves(curves: Sequence[Curve]) -> list[tuple[Array, Array]]:
    if not curves:
        raise ValueError("there are no curves: give at least one run")
    checked: list[tuple[Array, Array]] = []
    for run, (x, y) in enumerate(curves):
        xs, ys = _checked({f"run {run}, x": x, f"run {run}, y": y}).values()
        if xs.shape != ys.shape:
            raise ValueError(f"run {run} must have as many x as y, got {len(xs)} and {len(ys)}")
        if np.any(np.diff(xs) < 0):
            raise ValueError(f"the x of run {run} must never fall")
        checked.append((xs, ys))
    return checked


def _pooled(scores: Scores) -> Array:
    return np.concatenate(list(_checked(scores).values()), axis=-1)


def _env_means(scores: Scores) -> Array:
    return np.stack([values.mean(axis=-1) for values in _checked(scores).values()], axis=-1)


def _share_of_pairs_won(x: Array, y: Array) -> Value:
    """½ P(X > Y) + ½ P(X ≥ Y), in which a tie counts half."""
    ours, theirs = x[..., :, None], y[..., None, :]
    wins = np.count_nonzero(ours > theirs, axis=(-2, -1)) + np.count_nonzero(ours >= theirs, axis=(-2, -1))
    return wins / (2 * x.shape[-1] * y.shape[-1])


def _bounds(draws: Array, confidence: float) -> tuple[Array, Array]:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, (tail, 1 - tail), axis=0)
    return low, high


def _ranks(values: Array) -> Array:
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[position]
