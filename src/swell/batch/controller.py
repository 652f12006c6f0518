"""The adaptive batch for a loop that is not ours."""

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Self

import torch

from swell.batch.calibration import CalibratedScaler
from swell.batch.scalers import AdaptiveScaler
from swell.batch.signals import SIGNALS, KLDivergence
from swell.config.validation import Count
from swell.errors import ConfigError
from swell.types import BatchPlan, PolicyView, SampleLosses, Scaler, Signal

THRESHOLDS = ("calm_reading", "volatile_reading")
CALIBRATION = ("calibration_readings", "settling_readings")
READINGS_TO_JUDGE_BY = 20
"""So many readings that all lie outside of given thresholds are no accident."""


class BatchController:
    """Told how an update changed the policy, it answers with the next horizon.

        controller = swell.BatchController(min_horizon=64, max_horizon=512)
        while training:
            rollout = collect(controller.horizon)
            with controller.watch(lambda: swell.categorical_view(policy(rollout.states))):
                update(policy, rollout)

    By default the batch follows the KL divergence of each update as adaptive batch scaling has it. What is calm is
    found from the first readings: volatile is the median of `calibration_readings` (10) of them, after
    `settling_readings` (0) that do not count, and calm a tenth of that. Until then the horizon is the shortest.
    Given `calm_reading` and `volatile_reading`, it is these two from the start. Other settings of the AdaptiveScaler
    are taken by name, as is a signal; a signal or a scaler of your own takes their place.
    """

    def __init__(
        self,
        *,
        signal: Signal | str | None = None,
        scaler: Scaler | None = None,
        every: Count = 1,
        num_envs: int | None = None,
        **fields: Any,
    ) -> None:
        if not isinstance(every, int) or every < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"every must be a whole number of at least 1, got {every!r}")
        if scaler is not None and fields:
            raise ConfigError(f"{', '.join(fields)}: give these to the scaler, which is your own")
        self.signal: Signal = _signal(signal)
        self.scaler: Scaler = _scaler(self.signal.name, num_envs, fields) if scaler is None else scaler
        self.progress = 0.0
        """Of the run, in [0, 1]; set it where the scaler goes by it, as a ramp does."""
        self.reading: float | None = None
        """The last one that there was."""
        self._every = every
        self._updates = 0
        self._seen: dict[str, Any] = {"readings": 0, "between_thresholds": 0, "smallest": None, "largest": None}

    @classmethod
    def measuring(
        cls, horizon: Count, *, signal: Signal | str | None = None, every: Count = 1, **calibration: Any
    ) -> Self:
        """One that changes nothing: the horizon stays, and after some readings there are `thresholds` to suggest."""
        if unknown := [name for name in calibration if name not in CALIBRATION]:
            raise ConfigError(
                f"{', '.join(unknown)}: a controller that only measures takes {' and '.join(CALIBRATION)}"
            )
        return cls(signal=signal, every=every, min_horizon=horizon, max_horizon=horizon, **calibration)

    @property
    def plan(self) -> BatchPlan:
        return self.scaler.plan(self.progress)

    @property
    def horizon(self) -> int:
        """How many steps of each env to collect next."""
        return self.plan.horizon

    @property
    def thresholds(self) -> tuple[float, float] | None:
        """(calm, volatile): those given, or those found; None before there are enough readings."""
        return self.scaler.thresholds if isinstance(self.scaler, AdaptiveScaler | CalibratedScaler) else None

    @contextmanager
    def watch(self, policy: Callable[[], PolicyView]) -> Generator[None]:
        """Around an update: asks what the policy says before and after it, on the same states, and adjusts the batch.

        An update that fails is no update: its error passes, and nothing is adjusted.
        """
        finish = self.look(policy)
        yield
        finish()

    def look(self, policy: Callable[[], PolicyView]) -> Callable[[], float | None]:
        """`watch` in two halves: called before an update; what it returns is called after it, and says the reading."""
        self._updates += 1
        if self._updates % self._every:
            return lambda: None
        with torch.no_grad():
            read = self.signal.watch(_ForeignPolicy(policy))

        def finish() -> float | None:
            with torch.no_grad():
                reading = read()
            if reading is not None:
                self.adjust(reading)
            return reading

        return finish

    def adjust(self, reading: float) -> int:
        """Takes in a reading that was measured elsewhere, and answers with the next horizon."""
        self.reading = reading
        self.scaler.adjust(reading)
        self._note(reading)
        return self.horizon

    def _note(self, reading: float) -> None:
        seen = self._seen
        seen["readings"] += 1
        seen["smallest"] = reading if seen["smallest"] is None else min(reading, seen["smallest"])
        seen["largest"] = reading if seen["largest"] is None else max(reading, seen["largest"])
        if not isinstance(self.scaler, AdaptiveScaler):
            return
        calm, volatile = self.scaler.thresholds
        seen["between_thresholds"] += min(calm, volatile) < reading < max(calm, volatile)
        if seen["readings"] == READINGS_TO_JUDGE_BY and not seen["between_thresholds"]:
            warnings.warn(
                f"none of {self._range()} lies between calm_reading {calm:g} and volatile_reading {volatile:g}, so the "
                "batch does not follow the policy; without the two they are taken from the first readings",
                stacklevel=2,
            )

    def summary(self) -> str:
        """What was read, and which thresholds go with it, in one line."""
        if not self._seen["readings"]:
            return f"no readings of {self.signal.name}"
        if self.thresholds is None:
            return f"{self._range()}; too few for thresholds"
        return f"{self._range()}; calm_reading={self.thresholds[0]:.3g}, volatile_reading={self.thresholds[1]:.3g}"

    def _range(self) -> str:
        seen = self._seen
        return f"{seen['readings']} readings of {self.signal.name} from {seen['smallest']:.3g} to {seen['largest']:.3g}"

    def state_dict(self) -> dict[str, Any]:
        return {
            "kind": self._kind(),
            "updates": self._updates,
            "progress": self.progress,
            "reading": self.reading,
            "seen": dict(self._seen),
            "scaler": self.scaler.state_dict(),
            "signal": self.signal.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["kind"] != self._kind():
            raise ConfigError(
                f"the state is that of {state['kind']} and does not fit {self._kind()}; go on as it began"
            )
        self._updates = int(state["updates"])
        self.progress = float(state["progress"])
        self.reading = state["reading"]
        self._seen = dict(state["seen"])
        self.scaler.load_state_dict(state["scaler"])
        self.signal.load_state_dict(state["signal"])

    def _kind(self) -> str:
        return f"the {type(self.scaler).__name__} of {self.signal.name}"


def _signal(signal: Signal | str | None) -> Signal:
    if signal is None:
        return KLDivergence()
    if not isinstance(signal, str):
        return signal
    if signal not in SIGNALS:
        raise ConfigError(f"signal must be one of {', '.join(SIGNALS)} or an object of your own, got {signal!r}")
    return SIGNALS[signal]()


def _scaler(signal: str, num_envs: int | None, fields: dict[str, Any]) -> Scaler:
    given = [name for name in THRESHOLDS if name in fields]
    if len(given) == 1:
        raise ConfigError(f"{' and '.join(THRESHOLDS)} go together, got only {given[0]}; without both they are found")
    if not given:
        return CalibratedScaler(signal, num_envs=num_envs, **fields)
    if vain := [name for name in CALIBRATION if name in fields]:
        raise ConfigError(f"{', '.join(vain)}: with {' and '.join(THRESHOLDS)} given there is nothing to calibrate")
    return AdaptiveScaler(num_envs=num_envs, **fields)


class _ForeignPolicy:
    def __init__(self, view: Callable[[], PolicyView]) -> None:
        self.view = view

    def gradient_probe(self) -> tuple[torch.Tensor, SampleLosses, list[torch.nn.Parameter]]:
        raise ConfigError("the gradient noise scale needs the losses of Swell's own learners; take another signal")
