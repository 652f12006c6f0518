"""Signals: one number that says how fast the policy moves. They only look; nothing they do changes training."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Generator, Tensor

from swell.learning import losses
from swell.learning.distributions import ActionKind
from swell.learning.schedules import Every
from swell.types import Learner, PolicyLearner, Rollout, Signal

Window = Literal["iteration", "interval"]
Unit = Literal["iterations", "env-steps"]
PolicySignal = Literal["behavioral_divergence", "kl_divergence", "effective_sample_size"]


def behavioral_divergence(actions_before: Tensor, actions_after: Tensor) -> float:
    """The share of states whose greedy action changed, also known as policy churn (arXiv 2206.00730).

    δ = (1/M) Σ_i 1[π_θ'(s_i) ≠ π_θ(s_i)]

    Actions are [M], or [M, K] with K components, of which one is enough.
    """
    changed = actions_before != actions_after
    return changed.flatten(1).any(dim=1).float().mean().item() if changed.dim() > 1 else changed.float().mean().item()


def continuous_divergence(before: Tensor, after: Tensor, tolerance: float) -> float:
    """The share of states whose greedy action moved by more than `tolerance` standard deviations.

        δ = (1/M) Σ_i 1[ sqrt( (1/d) Σ_j ((a'_ij − a_ij) / σ_ij)² ) > tolerance ]

    `before` and `after` are [M, 2d]: greedy action ‖ standard deviation of the policy; σ is that of `before`.

    Continuous actions always change a little, so the question is whether the change can be told from the policy's own
    noise: hence σ as the unit. The root mean square over dimensions does not grow with their number, so one
    tolerance serves all envs. Greedy actions are clipped to the action space: a mean beyond its edge that moves
    further changes nothing that the env can see. Where σ is fixed and nothing is clipped, a move by r in every state
    is a KL divergence of d r² / 2.
    """
    dimensions = before.shape[1] // 2
    action, deviation = before.split(dimensions, dim=1)
    move = ((after[:, :dimensions] - action) / deviation).square().mean(dim=1).sqrt()
    return (move > tolerance).float().mean().item()


@dataclass(frozen=True)
class Probe:
    """States, and the actions that were taken there (as sampled, where the env received them clipped)."""

    states: Tensor
    actions: Tensor


@dataclass(frozen=True)
class Aspect:
    """What to look at in a learner on given states, and how to compare two looks: before, after."""

    name: PolicySignal
    look: Callable[[Learner, Probe], Tensor]
    compare: Callable[[Tensor, Tensor], float]


BEHAVIORAL_DIVERGENCE = Aspect(
    "behavioral_divergence", lambda learner, probe: learner.greedy_actions(probe.states), behavioral_divergence
)


def continuous_behavior(tolerance: float) -> Aspect:
    """Behavioral divergence of Gaussian policies; see `continuous_divergence`."""

    def look(learner: Learner, probe: Probe) -> Tensor:
        _, log_deviations = _policy_parameters(learner, probe).chunk(2, dim=1)
        return torch.cat([learner.greedy_actions(probe.states).flatten(1), log_deviations.exp()], dim=1)

    return Aspect("behavioral_divergence", look, lambda before, after: continuous_divergence(before, after, tolerance))


def kl_divergence(kind: ActionKind) -> Aspect:
    """The mean over states of the exact KL(π_θ' ‖ π_θ): new policy first."""

    def compare(before: Tensor, after: Tensor) -> float:
        divergences = kind.distribution(after).kl(kind.distribution(before))
        return divergences.clamp(min=0.0).mean().item()  # equal policies may differ from 0 by rounding

    return Aspect("kl_divergence", _policy_parameters, compare)


def effective_sample_size(kind: ActionKind) -> Aspect:
    """The share of the actions taken that still counts under the new policy, from 1/M to 1.

        e = (Σ_i w_i)² / (M Σ_i w_i²),   w_i = π_θ'(a_i|s_i) / π_θ(a_i|s_i)

    A policy that did not move reads 1, so calm is the larger threshold here.
    """

    def look(learner: Learner, probe: Probe) -> Tensor:
        return kind.distribution(_policy_parameters(learner, probe)).log_prob(probe.actions)

    return Aspect(
        "effective_sample_size", look, lambda before, after: losses.effective_sample_size(after - before).item()
    )


def make_aspect(name: PolicySignal, kind: ActionKind, tolerance: float) -> Aspect:
    """The aspect of a policy with actions of a `kind`; `tolerance` is for continuous ones."""
    match name:
        case "behavioral_divergence":
            return continuous_behavior(tolerance) if kind.name == "gaussian" else BEHAVIORAL_DIVERGENCE
        case "kl_divergence":
            return kl_divergence(kind)
        case "effective_sample_size":
            return effective_sample_size(kind)


def _policy_parameters(learner: Learner, probe: Probe) -> Tensor:
    return cast("PolicyLearner", learner).policy_parameters(probe.states)  # RunConfig refuses it for other learners


@dataclass(frozen=True)
class Look:
    """What was seen of a policy, and where."""

    probe: Probe
    view: Tensor


class PolicyChange:
    """How far one aspect of the policy moved, on states of the rollout being trained on.

    A window of one `iteration` compares the policy before and after one update. A window of one `interval` compares it
    with itself at the reading before, on the states of that time; its readings are larger, so thresholds differ.
    """

    def __init__(
        self,
        aspect: Aspect,
        window: Window,
        num_states: int,
        generator: Generator,
        device: torch.device | str = "cpu",
    ) -> None:
        self.name = aspect.name
        self._aspect = aspect
        self._window: Window = window
        self._num_states = num_states
        self._generator = generator
        self._device = device
        self._kept: Look | None = None

    def observe(self, learner: Learner, rollout: Rollout) -> Look:
        """The policy before the update."""
        return self._look(learner, self._choose(rollout))

    def reading(self, look: Look, learner: Learner) -> float | None:
        """The change that the update made; None while an interval has only begun."""
        reference = look if self._window == "iteration" else self._kept
        reading = None
        if reference is not None:
            reading = self._aspect.compare(reference.view, self._look(learner, reference.probe).view)
        if self._window == "interval":
            self._kept = self._look(learner, look.probe)
        return reading

    @torch.no_grad()
    def _look(self, learner: Learner, probe: Probe) -> Look:
        return Look(probe, self._aspect.look(learner, probe))

    def _choose(self, rollout: Rollout) -> Probe:
        indices = rollout.valid_indices
        order = torch.randperm(indices.shape[0], generator=self._generator)[: self._num_states]
        chosen = indices[order.to(indices.device)]
        actions = rollout.recorded.get("sampled_actions", rollout.actions)
        return Probe(rollout.states[chosen], actions.flatten(0, 1)[chosen])

    def state_dict(self) -> dict[str, Any]:
        kept = None
        if self._kept is not None:
            probe = self._kept.probe
            kept = {"states": probe.states, "actions": probe.actions, "view": self._kept.view}
        return {"generator": self._generator.get_state(), "kept": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"])
        kept = state["kept"]
        if kept is None:
            self._kept = None
            return
        states, actions, view = (kept[name].to(self._device) for name in ("states", "actions", "view"))
        self._kept = Look(Probe(states, actions), view)


class Measurement:
    """Takes a reading of a signal every so often, and keeps the time that it costs."""

    def __init__(self, signal: Signal, every: int, unit: Unit) -> None:
        self.signal = signal
        self.seconds = 0.0
        self._unit: Unit = unit
        self._cadence = Every(every)

    def due(self, iteration: int, env_steps: int) -> bool:
        return self._cadence.crossed(iteration if self._unit == "iterations" else env_steps)

    def observe(self, learner: Learner, rollout: Rollout) -> Any:
        """Looks before the update."""
        started = time.perf_counter()
        look = self.signal.observe(learner, rollout)
        self.seconds += time.perf_counter() - started
        return look

    def compare(self, before: Any, learner: Learner) -> float | None:
        """Looks after the update; None where the signal has nothing to compare with yet."""
        started = time.perf_counter()
        reading = self.signal.reading(before, learner)
        self.seconds += time.perf_counter() - started
        return reading

    def state_dict(self) -> dict[str, Any]:
        return {"cadence": self._cadence.state_dict(), "seconds": self.seconds, "signal": self.signal.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._cadence.load_state_dict(state["cadence"])
        self.seconds = state["seconds"]
        self.signal.load_state_dict(state["signal"])
