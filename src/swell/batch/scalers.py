"""Scalers: from readings of a signal to the next batch plan."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from swell.types import BatchPlan

Interpolation = Literal["log", "linear"]
Rounding = Literal["nearest", "truncate"]
EpochRule = Literal["constant", "scale", "proportional"]
MinibatchRule = Literal["count", "size"]


@dataclass(frozen=True)
class Effort:
    """How hard to train on a rollout of a given length."""

    num_envs: int
    epochs: int
    epoch_rule: EpochRule
    reference_horizon: int
    minibatch_rule: MinibatchRule
    minibatches: int
    minibatch_size: int
    horizon_multiple: int = 1

    def plan_near(self, horizon: float) -> BatchPlan:
        """The plan for a horizon that is kept to a fraction: only here it becomes a number of steps."""
        return self.plan(nearest_multiple(horizon, self.horizon_multiple))

    def plan(self, horizon: int) -> BatchPlan:
        epochs = self.epochs
        if self.epoch_rule != "constant":
            fewest = self.epochs if self.epoch_rule == "scale" else 1
            epochs = max(self.epochs * horizon // self.reference_horizon, fewest)
        minibatches = self.minibatches
        if self.minibatch_rule == "size":
            minibatches = max(1, round(self.num_envs * horizon / self.minibatch_size))
        return BatchPlan(horizon, epochs, minibatches)


def nonstationarity(reading: float, calm: float, volatile: float, interpolation: Interpolation) -> float:
    """Where a reading lies between calm (0) and volatile (1).

        ν = log(δ_c / δ_calm) / log(δ_volatile / δ_calm),   δ_c = δ clipped to what lies between the two

    `linear` uses (δ_c − δ_calm) / (δ_volatile − δ_calm) instead. Calm may be the larger of the two: an effective
    sample size falls as the policy moves.
    """
    clipped = min(max(reading, min(calm, volatile)), max(calm, volatile))
    if interpolation == "linear":
        return (clipped - calm) / (volatile - calm)
    return math.log(clipped / calm) / math.log(volatile / calm)


def move_towards(target: float, horizon: float, smoothing: float) -> float:
    """(1 − α) L + α L', a float: rounding here would stop the horizon short of its target."""
    return (1.0 - smoothing) * horizon + smoothing * target


def nearest_multiple(horizon: float, multiple: int) -> int:
    """At least one multiple; of two that are as near, the larger one."""
    return multiple * max(1, math.floor(horizon / multiple + 0.5))


def _require_reading(reading: float) -> None:
    if not 0.0 <= reading < math.inf:
        raise ValueError(f"a reading must be a finite number of at least 0, got {reading}")


class FixedScaler:
    """The same plan for ever; readings are recorded by the loop and ignored here."""

    def __init__(self, effort: Effort, horizon: int) -> None:
        self._plan = effort.plan(horizon)

    def plan(self, progress: float) -> BatchPlan:
        return self._plan

    def adjust(self, reading: float) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@dataclass(frozen=True)
class AdaptiveRule:
    """The numbers of adaptive batch scaling (arXiv 2605.21557)."""

    min_horizon: int
    max_horizon: int
    calm_reading: float
    volatile_reading: float
    interpolation: Interpolation
    smoothing: float
    history: int
    warmup_readings: int
    rounding: Rounding

    def target(self, reading: float) -> float:
        """L' = L_max − ν (L_max − L_min)."""
        share = nonstationarity(reading, self.calm_reading, self.volatile_reading, self.interpolation)
        return self.max_horizon - share * (self.max_horizon - self.min_horizon)


class AdaptiveScaler:
    """Adaptive batch scaling: a volatile policy gets short rollouts, a calm one long rollouts.

        L ← (1 − α) L + α L'

    L starts at the minimum and is kept as a float; `truncate` reproduces the public release, which cuts L' and L to
    whole numbers each time and so never comes nearer to a higher target than 9 steps.
    """

    def __init__(self, effort: Effort, rule: AdaptiveRule) -> None:
        self._effort = effort
        self._rule = rule
        self._horizon = float(rule.min_horizon)
        self._readings: deque[float] = deque(maxlen=rule.history)
        self._num_readings = 0

    def plan(self, progress: float) -> BatchPlan:
        return self._effort.plan_near(self._horizon)

    def adjust(self, reading: float) -> None:
        _require_reading(reading)
        self._readings.append(reading)
        self._num_readings += 1
        if self._num_readings < self._rule.warmup_readings:
            return
        self._move_towards(self._rule.target(sum(self._readings) / len(self._readings)))

    def _move_towards(self, target: float) -> None:
        if self._rule.rounding == "truncate":
            moved = float(int(move_towards(int(target), self._horizon, self._rule.smoothing)))
        else:
            moved = move_towards(target, self._horizon, self._rule.smoothing)
        self._horizon = min(max(moved, self._rule.min_horizon), self._rule.max_horizon)

    def state_dict(self) -> dict[str, Any]:
        return {"horizon": self._horizon, "readings": list(self._readings), "num_readings": self._num_readings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._horizon = float(state["horizon"])
        self._readings = deque(state["readings"], maxlen=self._rule.history)
        self._num_readings = int(state["num_readings"])


@dataclass(frozen=True)
class NoiseScaleRule:
    """The numbers of a batch that follows the gradient noise scale (arXiv 1812.06162)."""

    min_horizon: int
    max_horizon: int
    batch_per_noise_scale: float
    smoothing: float


class NoiseScaleScaler:
    """As many transitions per gradient step as the gradient noise scale, times `batch_per_noise_scale`.

        L' = c · B_noise · minibatches / num_envs    where the number of minibatches is fixed
        L' = c · B_noise / num_envs                  where their size is fixed

    With a fixed number of minibatches, the minibatch comes to c · B_noise: it is what one step averages over. With
    a fixed size no horizon can change the minibatch, so the whole rollout does. L' is clipped to its bounds, then
    L ← (1 − α) L + α L' from the minimum on; α = 1 jumps.
    """

    def __init__(self, effort: Effort, rule: NoiseScaleRule) -> None:
        self._effort = effort
        self._rule = rule
        self._horizon = float(rule.min_horizon)

    def plan(self, progress: float) -> BatchPlan:
        return self._effort.plan_near(self._horizon)

    def adjust(self, reading: float) -> None:
        _require_reading(reading)
        self._horizon = move_towards(self.target(reading), self._horizon, self._rule.smoothing)

    def target(self, noise_scale: float) -> float:
        effort, rule = self._effort, self._rule
        batches = effort.minibatches if effort.minibatch_rule == "count" else 1
        wanted = rule.batch_per_noise_scale * noise_scale * batches / effort.num_envs
        return min(max(wanted, rule.min_horizon), rule.max_horizon)

    def state_dict(self) -> dict[str, Any]:
        return {"horizon": self._horizon}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._horizon = float(state["horizon"])


Points = Sequence[tuple[float, float]]
"""(progress, horizon) pairs in order of progress; two at the same progress make a step."""


def steps_of(trajectory: Points) -> list[tuple[float, float]]:
    """Points that hold each horizon of a trajectory until the next begins, to replay another run exactly."""
    points = [trajectory[0]]
    for progress, horizon in trajectory[1:]:
        points += [(progress, points[-1][1]), (progress, horizon)]
    return points


class RampScaler:
    """Open loop: the horizon is a given function of progress, deaf to every reading.

    It interpolates between points. With the points of another run's trajectory it repeats that run's batch sizes,
    the control that tells adaptation from mere growth.
    """

    def __init__(self, effort: Effort, points: Points) -> None:
        self._effort = effort
        self._points = list(points)

    def plan(self, progress: float) -> BatchPlan:
        return self._effort.plan_near(self._horizon(progress))

    def _horizon(self, progress: float) -> float:
        position = bisect_right(self._points, progress, key=lambda point: point[0])
        if position == 0:
            return self._points[0][1]
        start, before = self._points[position - 1]
        if position == len(self._points):
            return before
        end, after = self._points[position]
        return before + (after - before) * (progress - start) / (end - start)

    def adjust(self, reading: float) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"points": [list(point) for point in self._points]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._points = [(float(progress), float(horizon)) for progress, horizon in state["points"]]
