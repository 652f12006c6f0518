"""The adaptive batch for a loop that is not ours."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

from swell.batch.scalers import AdaptiveScaler
from swell.batch.signals import KLDivergence
from swell.config.validation import Count
from swell.errors import ConfigError
from swell.types import BatchPlan, PolicyView, SampleLosses, Scaler, Signal

KL_THRESHOLDS = {"calm_reading": 0.01, "volatile_reading": 0.1}
"""Those of the public release of ABS for PPO; an update of yours may be calmer, see `reading`."""


class BatchController:
    """Told how an update changed the policy, it answers with the next horizon.

        controller = swell.BatchController(min_horizon=64, max_horizon=512, calm_reading=0.003, volatile_reading=0.03)
        while training:
            rollout = collect(controller.horizon)
            with controller.watch(lambda: swell.categorical_view(policy(rollout.states))):
                update(policy, rollout)

    By default the batch follows the KL divergence of each update as adaptive batch scaling has it; single settings of
    the AdaptiveScaler are taken by name. A signal or a scaler of your own takes their place.
    """

    def __init__(
        self,
        *,
        signal: Signal | None = None,
        scaler: Scaler | None = None,
        every: Count = 1,
        num_envs: int | None = None,
        **fields: Any,
    ) -> None:
        if not isinstance(every, int) or every < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"every must be a whole number of at least 1, got {every!r}")
        if scaler is not None and fields:
            raise ConfigError(f"{', '.join(fields)}: give these to the scaler, which is your own")
        if signal is None and scaler is None:
            fields = {**KL_THRESHOLDS, **fields}
        self.signal: Signal = KLDivergence() if signal is None else signal
        self.scaler: Scaler = AdaptiveScaler(num_envs=num_envs, **fields) if scaler is None else scaler
        self.progress = 0.0
        """Of the run, in [0, 1]; set it where the scaler goes by it, as a ramp does."""
        self.reading: float | None = None
        """The last one that there was."""
        self._every = every
        self._updates = 0

    @property
    def plan(self) -> BatchPlan:
        return self.scaler.plan(self.progress)

    @property
    def horizon(self) -> int:
        """How many steps of each env to collect next."""
        return self.plan.horizon

    @contextmanager
    def watch(self, policy: Callable[[], PolicyView]) -> Generator[None]:
        """Around an update: asks what the policy says before and after it, on the same states, and adjusts the batch.

        An update that fails is no update: its error passes, and nothing is adjusted.
        """
        self._updates += 1
        if self._updates % self._every:
            yield
            return
        with torch.no_grad():
            finish = self.signal.watch(_ForeignPolicy(policy))
        yield
        with torch.no_grad():
            reading = finish()
        if reading is not None:
            self.adjust(reading)

    def adjust(self, reading: float) -> int:
        """Takes in a reading that was measured elsewhere, and answers with the next horizon."""
        self.reading = reading
        self.scaler.adjust(reading)
        return self.horizon

    def state_dict(self) -> dict[str, Any]:
        return {
            "updates": self._updates,
            "progress": self.progress,
            "reading": self.reading,
            "scaler": self.scaler.state_dict(),
            "signal": self.signal.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._updates = int(state["updates"])
        self.progress = float(state["progress"])
        self.reading = state["reading"]
        self.scaler.load_state_dict(state["scaler"])
        self.signal.load_state_dict(state["signal"])


class _ForeignPolicy:
    def __init__(self, view: Callable[[], PolicyView]) -> None:
        self.view = view

    def gradient_probe(self) -> tuple[torch.Tensor, SampleLosses, list[torch.nn.Parameter]]:
        raise ConfigError("the gradient noise scale needs the losses of Swell's own learners; take another signal")
