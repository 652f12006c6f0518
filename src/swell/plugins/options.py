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
READING_ENV_STEPS = 512
"""From one reading to the next, unless `every` counts updates: two looks at the policy take a fifth of an update of A2C
on 40 samples, and next to nothing of one of PPO on thousands."""


def is_due(every: int | None, env_steps: int, collected: int) -> bool:
    """Whether the update after a rollout is looked at, which `collected` env steps and made them `env_steps` in all.

    Of rollouts of READING_ENV_STEPS or more, each is. Where updates are counted, the controller counts them.
    """
    return every is not None or env_steps // READING_ENV_STEPS > (env_steps - collected) // READING_ENV_STEPS


def adaptive_controller(
    min_steps: int, max_steps: int, signal: Signal | str | None = None, every: int | None = None, **options: Any
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
    every = 1 if every is None else every
    return BatchController(signal=signal, every=every, min_horizon=min_steps, max_horizon=max_steps, **given)
