"""Scalers: from readings of a signal to the next batch plan."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from swell.config.batch import AdaptiveSettings, BatchSettings, Interpolation, NoiseScaleSettings, RampSettings
from swell.config.validation import with_fields
from swell.errors import ConfigError
from swell.types import BatchPlan

SettingsKind = TypeVar("SettingsKind", bound=BatchSettings)


def batch_plan(settings: BatchSettings, num_envs: int | None, horizon: float) -> BatchPlan:
    """The plan for a horizon that is kept to a fraction: only here it becomes a number of steps, at least one."""
    steps = max(1, math.floor(horizon + 0.5))
    epochs, minibatches = settings.epochs, settings.minibatches
    if settings.epoch_rule != "constant":
        fewest = settings.epochs if settings.epoch_rule == "scale" else 1
        epochs = max(settings.epochs * steps // settings.horizon, fewest)
    if settings.minibatch_rule == "size":
        if num_envs is None:
            raise ConfigError("minibatch_rule size needs num_envs to know how many samples a rollout has")
        minibatches = max(1, round(num_envs * steps / settings.minibatch_size))
    return BatchPlan(steps, epochs, minibatches)


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


class HorizonScaler:
    """A scaler that says a horizon, to a fraction; how hard to train on it follows from the settings.

    The base of all scalers here, and of those of your own: override `horizon`, and `adjust` to hear readings. Made by
    hand, a scaler takes single settings by name; unless it is told `num_envs`, the number of minibatches is fixed.
    """

    def __init__(self, settings: BatchSettings | None = None, *, num_envs: int | None = None, **fields: Any) -> None:
        self.settings = _settings(BatchSettings, settings, num_envs, fields)
        self.num_envs = num_envs

    def horizon(self, progress: float) -> float:
        """The rollout length wanted now, from `progress` in [0, 1] and from what `adjust` was told."""
        return float(self.settings.horizon)

    def plan(self, progress: float) -> BatchPlan:
        return batch_plan(self.settings, self.num_envs, self.horizon(progress))

    def adjust(self, reading: float) -> None:
        """Takes in a reading; without a word of its own, a scaler is deaf to it."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def _settings(
    kind: type[SettingsKind], settings: BatchSettings | None, num_envs: int | None, fields: dict[str, Any]
) -> SettingsKind:
    if settings is None and num_envs is None:
        fields = {"minibatch_rule": "count", **fields}
    assert settings is None or isinstance(settings, kind)
    return with_fields(kind, settings, fields)


class FixedScaler(HorizonScaler):
    """The same plan for ever; readings are recorded by the loop and ignored here."""


class AdaptiveScaler(HorizonScaler):
    """Adaptive batch scaling (arXiv 2605.21557): a volatile policy gets short rollouts, a calm one long rollouts.

        L' = L_max − ν (L_max − L_min),   L ← (1 − α) L + α L'

    L starts at the minimum and is kept as a float; `truncate` reproduces the public release, which cuts L' and L to
    whole numbers each time and so never comes nearer to a higher target than 9 steps.
    """

    def __init__(self, settings: AdaptiveSettings | None = None, *, num_envs: int | None = None, **fields: Any) -> None:
        self.settings: AdaptiveSettings = _settings(AdaptiveSettings, settings, num_envs, fields)
        self.num_envs = num_envs
        self._horizon = float(self.settings.min_horizon)
        self._readings: deque[float] = deque(maxlen=self.settings.history)
        self._num_readings = 0

    @property
    def thresholds(self) -> tuple[float, float]:
        """(calm, volatile)."""
        return self.settings.calm_reading, self.settings.volatile_reading

    def horizon(self, progress: float) -> float:
        return self._horizon

    def adjust(self, reading: float) -> None:
        settings = self.settings
        _require_reading(reading)
        self._readings.append(reading)
        self._num_readings += 1
        if self._num_readings < settings.warmup_readings:
            return
        target = self.target(sum(self._readings) / len(self._readings))
        if settings.rounding == "truncate":
            moved = float(int(move_towards(int(target), self._horizon, settings.smoothing)))
        else:
            moved = move_towards(target, self._horizon, settings.smoothing)
        self._horizon = self._in_range(moved)

    def target(self, reading: float) -> float:
        """L' = L_max − ν (L_max − L_min)."""
        settings = self.settings
        share = nonstationarity(reading, settings.calm_reading, settings.volatile_reading, settings.interpolation)
        return settings.max_horizon - share * (settings.max_horizon - settings.min_horizon)

    def _in_range(self, horizon: float) -> float:
        return float(min(max(horizon, self.settings.min_horizon), self.settings.max_horizon))

    def state_dict(self) -> dict[str, Any]:
        return {"horizon": self._horizon, "readings": list(self._readings), "num_readings": self._num_readings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._horizon = self._in_range(float(state["horizon"]))  # which may be another range than that of the state
        self._readings = deque(state["readings"], maxlen=self.settings.history)
        self._num_readings = int(state["num_readings"])


class NoiseScaleScaler(HorizonScaler):
    """As many transitions per gradient step as the gradient noise scale, times `batch_per_noise_scale`.

        L' = c · B_noise · minibatches / num_envs    where the number of minibatches is fixed
        L' = c · B_noise / num_envs                  where their size is fixed

    With a fixed number of minibatches, the minibatch comes to c · B_noise: it is what one step averages over. With
    a fixed size no horizon can change the minibatch, so the whole rollout does. L' is clipped to its bounds, then
    L ← (1 − α) L + α L' from the minimum on; α = 1 jumps.
    """

    def __init__(self, settings: NoiseScaleSettings | None = None, *, num_envs: int, **fields: Any) -> None:
        self.settings: NoiseScaleSettings = _settings(NoiseScaleSettings, settings, num_envs, fields)
        self.num_envs: int = num_envs
        self._horizon = float(self.settings.min_horizon)

    def horizon(self, progress: float) -> float:
        return self._horizon

    def adjust(self, reading: float) -> None:
        _require_reading(reading)
        self._horizon = move_towards(self.target(reading), self._horizon, self.settings.smoothing)

    def target(self, noise_scale: float) -> float:
        settings = self.settings
        minibatches = settings.minibatches if settings.minibatch_rule == "count" else 1
        wanted = settings.batch_per_noise_scale * noise_scale * minibatches / self.num_envs
        return min(max(wanted, settings.min_horizon), settings.max_horizon)

    def state_dict(self) -> dict[str, Any]:
        return {"horizon": self._horizon}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._horizon = float(state["horizon"])


def _require_reading(reading: float) -> None:
    if not 0.0 <= reading < math.inf:
        raise ValueError(f"a reading must be a finite number of at least 0, got {reading}")


Points = Sequence[tuple[float, float]]
"""(progress, horizon) pairs in order of progress; two at the same progress make a step."""


def evenly_spaced(horizons: Sequence[float]) -> list[tuple[float, float]]:
    """Points at evenly spaced moments of a run."""
    last = max(1, len(horizons) - 1)
    return [(number / last, float(horizon)) for number, horizon in enumerate(horizons)]


def steps_of(trajectory: Points) -> list[tuple[float, float]]:
    """Points that hold each horizon of a trajectory until the next begins, to replay another run exactly."""
    points = [trajectory[0]]
    for progress, horizon in trajectory[1:]:
        points += [(progress, points[-1][1]), (progress, horizon)]
    return points


class RampScaler(HorizonScaler):
    """Open loop: the horizon is a given function of progress, deaf to every reading.

    It interpolates between points, by default those of `ramp_horizons`. With the points of another run's trajectory it
    repeats that run's batch sizes, the control that tells adaptation from mere growth.
    """

    def __init__(
        self,
        settings: RampSettings | None = None,
        *,
        num_envs: int | None = None,
        points: Points | None = None,
        **fields: Any,
    ) -> None:
        self.settings: RampSettings = _settings(RampSettings, settings, num_envs, fields)
        self.num_envs = num_envs
        self._points = list(points or evenly_spaced(self.settings.ramp_horizons))

    def horizon(self, progress: float) -> float:
        position = bisect_right(self._points, progress, key=lambda point: point[0])
        if position == 0:
            return self._points[0][1]
        start, before = self._points[position - 1]
        if position == len(self._points):
            return before
        end, after = self._points[position]
        return before + (after - before) * (progress - start) / (end - start)

    def state_dict(self) -> dict[str, Any]:
        return {"points": [list(point) for point in self._points]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._points = [(float(progress), float(horizon)) for progress, horizon in state["points"]]
