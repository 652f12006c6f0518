"""Signals: one number that says how fast the policy moves. They only look; nothing they do changes training."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from swell.schedules import Every
from swell.types import Learner, Rollout

Window = Literal["iteration", "interval"]
Unit = Literal["iterations", "env-steps"]


def behavioral_divergence(actions_before: Tensor, actions_after: Tensor) -> float:
    """The share of states whose greedy action changed, also known as policy churn (arXiv 2206.00730).

    δ = (1/M) Σ_i 1[π_θ'(s_i) ≠ π_θ(s_i)]
    """
    return (actions_before != actions_after).float().mean().item()


@dataclass(frozen=True)
class Signal:
    """How to look at a learner on given states, and how to compare two looks."""

    name: str
    look: Callable[[Learner, Tensor], Tensor]
    compare: Callable[[Tensor, Tensor], float]


BEHAVIORAL_DIVERGENCE = Signal(
    "behavioral_divergence", lambda learner, states: learner.greedy_actions(states), behavioral_divergence
)


@dataclass(frozen=True)
class Look:
    """What a signal saw, and on which states."""

    states: Tensor
    view: Tensor


class Measurement:
    """Takes a reading of a signal every so often, on states of the rollout being trained on.

    A window of one `iteration` compares the policy before and after one update. A window of one `interval` compares it
    with itself at the reading before, on the states of that time; its readings are larger, so thresholds differ.
    """

    def __init__(
        self,
        signal: Signal,
        every: int,
        unit: Unit,
        window: Window,
        num_states: int,
        generator: Generator,
        device: torch.device | str = "cpu",
    ) -> None:
        self.signal = signal
        self.seconds = 0.0
        self._unit: Unit = unit
        self._window: Window = window
        self._num_states = num_states
        self._generator = generator
        self._device = device
        self._cadence = Every(every)
        self._kept: Look | None = None

    def due(self, iteration: int, env_steps: int) -> bool:
        return self._cadence.crossed(iteration if self._unit == "iterations" else env_steps)

    def observe(self, learner: Learner, rollout: Rollout) -> Look:
        """Looks before the update."""
        started = time.perf_counter()
        states = self._choose_states(rollout)
        look = Look(states, self.signal.look(learner, states))
        self.seconds += time.perf_counter() - started
        return look

    def compare(self, before: Look, learner: Learner) -> float | None:
        """Looks after the update; None while an interval has only begun."""
        started = time.perf_counter()
        reference = before if self._window == "iteration" else self._kept
        reading = None
        if reference is not None:
            reading = self.signal.compare(reference.view, self.signal.look(learner, reference.states))
        if self._window == "interval":
            self._kept = Look(before.states, self.signal.look(learner, before.states))
        self.seconds += time.perf_counter() - started
        return reading

    def _choose_states(self, rollout: Rollout) -> Tensor:
        indices = rollout.valid_indices
        order = torch.randperm(indices.shape[0], generator=self._generator)[: self._num_states]
        return rollout.states[indices[order.to(indices.device)]]

    def state_dict(self) -> dict[str, Any]:
        kept = None if self._kept is None else {"states": self._kept.states, "view": self._kept.view}
        return {
            "cadence": self._cadence.state_dict(),
            "generator": self._generator.get_state(),
            "kept": kept,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._cadence.load_state_dict(state["cadence"])
        self._generator.set_state(state["generator"])
        kept = state["kept"]
        self._kept = None if kept is None else Look(kept["states"].to(self._device), kept["view"].to(self._device))
        self.seconds = state["seconds"]
