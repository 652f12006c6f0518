"""The nouns of the loop: what is collected, how hard to train on it, and who does what."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from torch import Generator, Tensor, nn

SampleLosses = Callable[[Tensor], Tensor]
"""From indices [B] of a rollout's transitions to the training loss of each, [B]; where several processes share the
rollout, to the losses of those that are this one's."""
GradientProbe = tuple[Tensor, SampleLosses, Sequence[nn.Parameter]]
"""Indices of the transitions about to be trained on, the loss of any of them, and what its gradient is taken by."""


@dataclass(frozen=True)
class Rollout:
    """What `num_envs` envs returned in `horizon` steps. Tensors are [T, N] unless they say otherwise."""

    observations: Tensor
    """[T + 1, N, ...] in the env's own dtype; the last row is what the next rollout starts from."""
    actions: Tensor
    """[T, N], or [T, N, K] where an action has K components; as the envs received them."""
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    """False on reset rows, which are no transitions and must not be learned from."""
    final_observations: Tensor
    """[K, ...] last observations of truncated episodes that `observations` no longer shows."""
    final_indices: Tensor
    """[K] their rows, as indices into the flattened [T * N]."""
    recorded: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """What the learner noted as it acted, such as the value of each state."""

    @property
    def horizon(self) -> int:
        return self.actions.shape[0]

    @property
    def states(self) -> Tensor:
        """[T * N, ...] the observations that were acted on."""
        return self.observations[:-1].flatten(0, 1)

    @property
    def valid_indices(self) -> Tensor:
        """Indices into `states` of the real transitions."""
        return self.valid.flatten().nonzero().squeeze(1)


def most_rows(env_steps: int, num_envs: int) -> int:
    """How long a rollout can get that ends with so many env steps: every other row may be a reset, which is no step."""
    return 2 * -(-env_steps // num_envs)


@dataclass(frozen=True)
class BatchPlan:
    """How much to collect and how hard to train on it."""

    horizon: int
    epochs: int
    minibatches: int


@dataclass(frozen=True)
class Iteration:
    """What one turn of the loop did."""

    number: int
    env_steps: int
    horizon: int
    plan: BatchPlan
    reading: float | None
    metrics: Mapping[str, float]


class Distribution(Protocol):
    """The action distributions of B states."""

    def sample(self, generator: Generator) -> Tensor:
        """One action per state, on the parameters' device, without gradient; `generator` lives on the CPU."""
        ...

    def log_prob(self, actions: Tensor) -> Tensor:
        """log π(a), [B]: of all components of an action together."""
        ...

    def entropy(self) -> Tensor:
        """H(π), [B]."""
        ...

    def mode(self) -> Tensor:
        """The most probable action of every state."""
        ...

    def kl(self, other: Self) -> Tensor:
        """KL(self ‖ other), exact, [B]."""
        ...


class DistributionKind(Protocol):
    """How a flat vector of parameters becomes a distribution of actions."""

    @property
    def num_parameters(self) -> int: ...

    @property
    def is_continuous(self) -> bool: ...

    def distribution(self, parameters: Tensor) -> Distribution: ...


@dataclass(frozen=True)
class PolicyView:
    """What a policy says on M states at one moment."""

    greedy_actions: Tensor
    """[M], or [M, ...] where an action has several components; as an env would receive them."""
    parameters: Tensor | None = None
    """[M, P] of its distributions, if it is stochastic."""
    kind: DistributionKind | None = None
    """What the parameters are those of."""
    log_probs: Tensor | None = None
    """[M] of the actions that were taken in these states, if they are known."""


class WatchedPolicy(Protocol):
    """A policy around an update, as a signal sees it: no envs, no rollouts."""

    def view(self) -> PolicyView:
        """What it says now, on states that stay the same from one call to the next."""
        ...

    def gradient_probe(self) -> GradientProbe: ...


class Signal(Protocol):
    """One number about an update. It only looks: nothing it does changes training."""

    @property
    def name(self) -> str: ...

    def watch(self, policy: WatchedPolicy) -> Callable[[], float | None]:
        """Looks before an update. What it returns is called after the update, and says the reading if there is one."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Actor(Protocol):
    """Acts through one rollout after another, without a call of torch at any step."""

    recorded: dict[str, Tensor]
    """[T, N, ...] what a learner's `act` would record, for the longest rollout."""

    def start(self, horizon: int) -> None:
        """Draws the noise of all steps of a rollout."""
        ...

    def act(self, step: int, observations: np.ndarray, progress: float) -> np.ndarray:
        """The actions of all envs, as the envs take them; good until the next rollout."""
        ...

    def finish(self, states: Tensor) -> None:
        """Records what was left for the end of a rollout, whose states are [T, N, ...]."""
        ...


@runtime_checkable
class HasActor(Protocol):
    """A learner that may have a faster way to act; one of your own need not."""

    def actor(self, max_horizon: int, num_envs: int) -> Actor | None:
        """What does the same as `act`; None where there is nothing faster."""
        ...


class Learner(Protocol):
    """A network, its optimizer and its update rule."""

    gradient_steps: int
    """Taken so far."""
    micro_batch_size: int
    """Most samples that go through the network at once; it is halved where memory runs out, and stays so."""

    @property
    def network(self) -> nn.Module:
        """What is trained."""
        ...

    def act(self, observations: Tensor, progress: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Actions [N] or [N, K] to explore with, and what to record beside them."""
        ...

    def greedy_actions(self, observations: Tensor) -> Tensor:
        """The actions it believes in, without exploration; draws no random number."""
        ...

    def view(self, states: Tensor, actions: Tensor) -> PolicyView:
        """What its policy says in these states, in which these actions were taken; draws no random number."""
        ...

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]: ...

    def gradient_probe(self, rollout: Rollout) -> GradientProbe:
        """Of the rollout's real transitions; changes nothing."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Scaler(Protocol):
    """Turns readings of a signal into the next batch plan."""

    def plan(self, progress: float) -> BatchPlan: ...

    def adjust(self, reading: float) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
