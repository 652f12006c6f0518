"""Thresholds from a run's own first readings: what is calm depends on the policy, its learning rate and its batch."""

import statistics
from typing import Any

from swell.batch.scalers import AdaptiveScaler, HorizonScaler
from swell.errors import ConfigError

CALM_SHARE = 0.1
"""A policy counts as calm once it moves a tenth as far, in KL divergence, as it did at the start."""


def thresholds_from(readings: list[float], signal: str) -> tuple[float, float] | None:
    """(calm, volatile): volatile is the median of the readings, calm a tenth of its KL divergence; None of no motion.

    The lost share 1 − e of an effective sample size goes with the KL, a share of changed actions with its root.
    """
    middle = statistics.median(readings)
    if signal == "effective_sample_size":
        return (1.0 - CALM_SHARE * (1.0 - middle), middle) if middle < 1.0 else None
    if middle <= 0.0:
        return None
    return middle * (CALM_SHARE**0.5 if signal == "behavioral_divergence" else CALM_SHARE), middle


class CalibratedScaler(HorizonScaler):
    """An AdaptiveScaler whose thresholds are taken from its first readings; until then the horizon is the shortest.

    The very first `settling_readings` are left out: an Adam that has seen few gradients makes longer steps than later.
    Readings that show no motion at all do not calibrate: it waits for more.
    """

    def __init__(
        self,
        signal: str,
        *,
        calibration_readings: int = 10,
        settling_readings: int = 0,
        num_envs: int | None = None,
        **fields: Any,
    ) -> None:
        _require_count("calibration_readings", calibration_readings, least=1)
        _require_count("settling_readings", settling_readings, least=0)
        self._signal = signal
        self._wanted = calibration_readings
        self._settling = settling_readings
        self._fields = fields
        self._first: list[float] = []
        self._adaptive = AdaptiveScaler(num_envs=num_envs, **fields)
        super().__init__(self._adaptive.settings, num_envs=num_envs)

    @property
    def thresholds(self) -> tuple[float, float] | None:
        """(calm, volatile), once there are enough readings."""
        settled = self._first[self._settling :]
        return thresholds_from(settled, self._signal) if len(settled) >= self._wanted else None

    def horizon(self, progress: float) -> float:
        return self._adaptive.horizon(progress)

    def adjust(self, reading: float) -> None:
        if self.thresholds is not None:
            self._adaptive.adjust(reading)
            return
        self._first.append(reading)
        self._calibrate()

    def _calibrate(self) -> None:
        if self.thresholds is not None:
            calm, volatile = self.thresholds
            thresholds: dict[str, Any] = {"calm_reading": calm, "volatile_reading": volatile}
            self._adaptive = AdaptiveScaler(num_envs=self.num_envs, **self._fields, **thresholds)

    def state_dict(self) -> dict[str, Any]:
        return {"first": list(self._first), "adaptive": self._adaptive.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._first = list(state["first"])
        self._calibrate()
        self._adaptive.load_state_dict(state["adaptive"])


def _require_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
