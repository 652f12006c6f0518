"""Regret: how far a variant stays behind the fixed horizon that did best in hindsight. Scores in, numbers out.

    regret = (best − score) / (best − worst)

of means over runs; best and worst are those of the fixed horizons on the same env. 0 is as good as the best of them, 1
as bad as the worst, and less than 0 better than all. Three things keep it honest:

- The best of several noisy means is too good (the winner's curse), so regret is overstated. Resampling does the same
  once more to an interval, which leans to the high side. `Yardstick.luck` estimates by how much.
- A fixed horizon has a regret too: over several envs no single one is the best everywhere, and the one with the
  smallest mean is the rival to beat.
- Where fixed horizons differ by no more than chance makes runs differ, the ratio is noise. `Yardstick.tells` says so,
  and such envs are in no mean and no maximum unless asked for.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from swell.report.stats import Array, Interval, resampled

RunsByEnv = Mapping[str, Mapping[str, ArrayLike]]
"""Env -> variant -> the scores of its runs, in any order."""


@dataclass(frozen=True)
class Yardstick:
    """What the fixed horizons of one env came to."""

    best: str
    worst: str
    best_score: float
    worst_score: float
    chance: float
    """How likely it is that runs which differ in nothing but chance spread as far as these, by shuffling them."""
    luck: float
    """By how much, in spreads, the best is likely to look better than it is because it was picked for its score."""
    tells: bool
    """Whether the spread is more than chance would make."""

    @property
    def spread(self) -> float:
        return self.best_score - self.worst_score


@dataclass(frozen=True)
class Regrets:
    """The regret of every variant on every env that has a yardstick, and over envs."""

    yardsticks: Mapping[str, Yardstick]
    draws: Mapping[str, Mapping[str, Array]] = field(repr=False)
    """Variant -> env -> the regret, followed by that of each resample; NaN where all fixed horizons scored the same."""
    confidence: float = 0.95

    def of(self, variant: str, env: str) -> Interval:
        """The regret of one variant on one env, NaN where all fixed horizons scored the same."""
        return self._interval(self.draws[variant][env])

    def mean(self, variant: str, envs: Collection[str] | None = None) -> Interval | None:
        """Over the envs that tell, or over these; None where the variant has none of them."""
        draws = self._over(variant, envs)
        return self._interval(draws.mean(axis=0)) if draws.size else None

    def largest(self, variant: str, envs: Collection[str] | None = None) -> Interval | None:
        """The worst of the envs that tell, or of these."""
        draws = self._over(variant, envs)
        return self._interval(draws.max(axis=0)) if draws.size else None

    def difference(self, variant: str, rival: str) -> Interval | None:
        """Mean regret of the variant minus the rival's, over the envs that tell and that both have."""
        shared = [env for env in self.envs_of(variant) if env in self.envs_of(rival)]
        ours, theirs = self._over(variant, shared), self._over(rival, shared)
        return self._interval((ours - theirs).mean(axis=0)) if shared else None

    def telling(self) -> list[str]:
        """The envs whose fixed horizons differ by more than chance."""
        return [env for env, yardstick in self.yardsticks.items() if yardstick.tells]

    def envs_of(self, variant: str, envs: Collection[str] | None = None) -> list[str]:
        """Those of `envs`, by default of the ones that tell, on which the variant has a regret."""
        known = [env for env, draws in self.draws.get(variant, {}).items() if not math.isnan(draws[0])]
        return [env for env in (self.telling() if envs is None else envs) if env in known]

    def _over(self, variant: str, envs: Collection[str] | None) -> Array:
        """[envs, 1 + resamples]"""
        return np.array([self.draws[variant][env] for env in self.envs_of(variant, envs)], np.float64)

    def _interval(self, draws: Array) -> Interval:
        """Percentiles; where resamples all lie on one side of the value, as with a best, the interval reaches to it."""
        value, resamples = float(draws[0]), draws[1:][~np.isnan(draws[1:])]
        if not resamples.size:
            return Interval(value, value, value)
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(resamples, (tail, 1 - tail))
        return Interval(value, min(value, float(low)), max(value, float(high)))


def regrets(
    runs_by_env: RunsByEnv,
    fixed: Collection[str],
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Regrets:
    """The regret of every variant, those with a `fixed` horizon included, from the scores of their runs.

    Envs with fewer than two of the fixed horizons have no yardstick and are left out. Intervals are percentiles over
    resamples of the runs of each variant on each env; best and worst are picked anew in each.
    """
    generator = np.random.default_rng(seed)
    yardsticks: dict[str, Yardstick] = {}
    draws: dict[str, dict[str, Array]] = {}
    for env, by_variant in sorted(runs_by_env.items()):
        horizons = sorted(by_variant.keys() & set(fixed))
        if len(horizons) < 2:
            continue
        # Sorted, like the envs: neither the order of runs nor that of variants decides anything.
        scores = {variant: np.sort(np.asarray(by_variant[variant], np.float64)) for variant in sorted(by_variant)}
        drawn = resampled(scores, generator, resamples)
        means = {variant: np.append(runs.mean(), drawn[variant].mean(axis=-1)) for variant, runs in scores.items()}
        of_fixed = {variant: means[variant] for variant in horizons}
        chance = chance_of_spread([scores[variant] for variant in horizons], generator, resamples)
        yardsticks[env] = _yardstick(of_fixed, chance, tells=chance <= 1 - confidence)
        for variant in scores:
            draws.setdefault(variant, {})[env] = regret(means[variant], np.stack(list(of_fixed.values()), axis=-1))
    return Regrets(yardsticks, draws, confidence)


def _yardstick(means: Mapping[str, Array], chance: float, tells: bool) -> Yardstick:
    """From the mean of each fixed horizon and, after it, those of its resamples."""
    best, worst = (pick(means, key=lambda variant: means[variant][0]) for pick in (max, min))
    high, low = float(means[best][0]), float(means[worst][0])
    resampled_best = np.max([values[1:] for values in means.values()], axis=0)
    luck = max(0.0, float(resampled_best.mean()) - high) / (high - low) if high > low else math.nan
    return Yardstick(best, worst, high, low, chance, luck, tells)


def regret(score: ArrayLike, fixed: ArrayLike) -> Array:
    """(best − score) / (best − worst) for scores [...] and those of the fixed horizons [..., horizons].

    NaN where all of these are the same.
    """
    of_fixed = np.asarray(fixed, np.float64)
    best, spread = of_fixed.max(axis=-1), np.ptp(of_fixed, axis=-1)
    return np.divide(best - np.asarray(score), spread, out=np.full(np.shape(spread), np.nan), where=spread > 0)


def chance_of_spread(runs: Sequence[ArrayLike], generator: np.random.Generator, shuffles: int = 2000) -> float:
    """How likely the best mean is as far above the worst as here if it does not matter which group a run is in.

    A permutation test: runs are shuffled between the groups. It allows for the best and the worst being picked, as an
    interval of their difference would not. With too few runs nothing is unlikely.
    """
    groups = [np.sort(np.asarray(values, np.float64)) for values in runs]
    pooled = np.concatenate(groups)
    ends = np.cumsum([len(group) for group in groups])[:-1]
    shuffled = generator.permuted(np.tile(pooled, (shuffles, 1)), axis=1)
    spreads = np.ptp([part.mean(axis=-1) for part in np.split(shuffled, ends, axis=-1)], axis=0)
    observed = float(np.ptp([group.mean() for group in groups]))
    rounding = 1e-9 * float(np.abs(pooled).max(initial=0.0))  # the same means, added up in another order
    return float((1 + np.count_nonzero(spreads >= observed - rounding)) / (1 + shuffles))


def undominated(costs: Sequence[float], scores: Sequence[float]) -> list[int]:
    """The front: which of the points are as good as all that cost no more, the cheapest first."""
    front: list[int] = []
    for point in sorted(range(len(costs)), key=lambda at: (costs[at], -scores[at])):
        if not front or scores[point] > scores[front[-1]]:
            front.append(point)
    return front
