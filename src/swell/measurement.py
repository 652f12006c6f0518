"""The measuring stage of the loop: on which states a signal looks at the policy, and when."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from swell.config.batch import MeasureUnit, Window
from swell.learning.schedules import Every
from swell.ranks import everyones, is_alone, shared_samples
from swell.types import DistributionKind, GradientProbe, Learner, PolicyView, Rollout, Signal


@dataclass(frozen=True)
class Probe:
    """States, and the actions that were taken there (as sampled, where the env received them clipped)."""

    states: Tensor
    actions: Tensor
    is_own: Tensor | None = None
    """Where several processes share a probe: which of its states are these."""

    def view(self, learner: Learner) -> PolicyView:
        """What the learner's policy says on the states of all processes, in the order in which they were chosen."""
        if self.is_own is None:
            return learner.view(self.states, self.actions)
        view = learner.view(self.states, self.actions) if self.states.shape[0] else None
        views = [(is_own, seen) for is_own, seen in everyones((self.is_own, view)) if seen is not None]
        kind = None if view is None else view.kind
        return put_together(views, kind or next(seen.kind for _, seen in views))


def put_together(views: Sequence[tuple[Tensor, PolicyView]], kind: DistributionKind | None) -> PolicyView:
    """One view of the states of several; each comes with which of them it saw."""

    def whole(parts: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor | None:
        known = [(is_own, part) for is_own, part in parts if part is not None]
        if not known:
            return None
        is_own, part = known[0]
        rows = part.new_empty((is_own.shape[0], *part.shape[1:]))
        for is_own, part in known:
            rows[is_own] = part
        return rows

    greedy_actions = whole([(is_own, view.greedy_actions) for is_own, view in views])
    assert greedy_actions is not None
    parameters = whole([(is_own, view.parameters) for is_own, view in views])
    log_probs = whole([(is_own, view.log_probs) for is_own, view in views])
    return PolicyView(greedy_actions, parameters, kind, log_probs)


Before = tuple[Probe, Callable[[], float | None] | None]
"""What is kept from before an update until after it: where it was looked at, and what to call for the reading. There is
nothing to call where the reading is taken since the one before."""


class Measurement:
    """Takes a reading of a signal every so often, on states of the rollout being trained on; keeps the time it costs.

    A window of one `iteration` compares the policy before and after one update. A window of one `interval` compares it
    with itself at the reading before, on the states of that time; its readings are larger, so thresholds differ.
    """

    def __init__(
        self,
        signal: Signal,
        every: int = 10,
        unit: MeasureUnit = "iterations",
        *,
        probe_states: int = 2048,
        window: Window = "iteration",
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.signal = signal
        self.seconds = 0.0
        self._unit: MeasureUnit = unit
        self._cadence = Every(every)
        self._probe_states = probe_states
        self._window: Window = window
        self._generator = Generator().manual_seed(seed)
        self._device = device
        self._kept: tuple[Probe, PolicyView] | None = None

    def due(self, iteration: int, env_steps: int) -> bool:
        return self._cadence.crossed(iteration if self._unit == "iterations" else env_steps)

    def observe(self, learner: Learner, rollout: Rollout) -> Before:
        """Looks before the update."""
        started = time.perf_counter()
        probe = self._choose(rollout)
        read = None
        if self._window == "iteration":
            read = self.signal.watch(_PolicyOnProbe(learner, probe, rollout))
        self.seconds += time.perf_counter() - started
        return probe, read

    def compare(self, before: Before | None, learner: Learner) -> float | None:
        """Looks after the update; None where the signal has nothing to compare with yet."""
        if before is None:
            return None
        probe, read = before
        started = time.perf_counter()
        reading = self._since_the_last_reading(learner, probe) if read is None else read()
        self.seconds += time.perf_counter() - started
        return reading

    def _since_the_last_reading(self, learner: Learner, probe: Probe) -> float | None:
        reading = None
        if self._kept is not None:
            old_probe, old_view = self._kept
            reading = self.signal.watch(_PolicyOnProbe(learner, old_probe, seen=old_view))()
        self._kept = probe, probe.view(learner)
        return reading

    def _choose(self, rollout: Rollout) -> Probe:
        indices, shares = shared_samples(rollout.valid)
        order = torch.randperm(indices.shape[0], generator=self._generator)[: self._probe_states]
        chosen = indices[order.to(indices.device)]
        actions = rollout.recorded.get("sampled_actions", rollout.actions).flatten(0, 1)
        rows = shares.own(chosen)
        return Probe(rollout.states[rows], actions[rows], None if is_alone() else shares.are_own(chosen))

    def state_dict(self) -> dict[str, Any]:
        kept = None
        if self._kept is not None:
            probe, view = self._kept
            kept = {
                "states": probe.states,
                "actions": probe.actions,
                "greedy_actions": view.greedy_actions,
                "parameters": view.parameters,
                "log_probs": view.log_probs,
                **({} if probe.is_own is None else {"is_own": probe.is_own}),
            }
        return {
            "cadence": self._cadence.state_dict(),
            "seconds": self.seconds,
            "generator": self._generator.get_state(),
            "kept": kept,
            "signal": self.signal.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._cadence.load_state_dict(state["cadence"])
        self.seconds = state["seconds"]
        self._generator.set_state(state["generator"])
        self.signal.load_state_dict(state["signal"])
        self._kept = None
        if state["kept"] is not None:
            kept: dict[str, Any] = {
                name: None if value is None else value.to(self._device) for name, value in state["kept"].items()
            }
            probe = Probe(kept["states"], kept["actions"], kept.get("is_own"))
            # Signals ask the newer view what kind of distribution it is, which never changes in a run.
            view = PolicyView(kept["greedy_actions"], kept["parameters"], log_probs=kept["log_probs"])
            self._kept = probe, view


class _PolicyOnProbe:
    """A learner's policy as a signal sees it: on states that stay the same."""

    def __init__(
        self, learner: Learner, probe: Probe, rollout: Rollout | None = None, seen: PolicyView | None = None
    ) -> None:
        self._learner = learner
        self._probe = probe
        self._rollout = rollout
        self._seen = seen
        """What it said when it was first asked, if that was some time ago."""

    def view(self) -> PolicyView:
        seen, self._seen = self._seen, None
        return self._probe.view(self._learner) if seen is None else seen

    def gradient_probe(self) -> GradientProbe:
        assert self._rollout is not None  # RunConfig has no interval for signals of gradients
        return self._learner.gradient_probe(self._rollout)
