"""The options that all plug-ins share, and the controller that they make."""

from typing import Any

from swell.batch.controller import BatchController
from swell.errors import ConfigError
from swell.types import Signal

OPTIONS = (
    *("calm_reading", "volatile_reading", "calibration_readings", "settling_readings"),
    *("smoothing", "history", "interpolation", "warmup_readings"),
)
"""Of a BatchController that mean something where another library decides how hard to train on a batch."""


def adaptive_controller(
    min_steps: int, max_steps: int, signal: Signal | str | None = None, every: int = 1, **options: Any
) -> BatchController:
    """One that moves the steps of each env between two bounds."""
    for name, value in (("min_steps", min_steps), ("max_steps", max_steps)):
        if not isinstance(value, int) or value < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
    if min_steps > max_steps:
        raise ConfigError(f"min_steps must be at most max_steps, got {min_steps} and {max_steps}")
    if unknown := [name for name in options if name not in OPTIONS]:
        raise ConfigError(f"unknown option {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
    given = {name: value for name, value in options.items() if value is not None}
    return BatchController(signal=signal, every=every, min_horizon=min_steps, max_horizon=max_steps, **given)
