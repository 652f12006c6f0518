"""The nouns of the loop: what is collected, how hard to train on it, and who does what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

SampleLosses = Callable[[Tensor], Tensor]
"""From indices [B] of a rollout's transitions to the training loss of each, [B]."""


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


class Learner(Protocol):
    """A network, its optimizer and its update rule."""

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

    def update(self, rollout: Rollout, plan: BatchPlan, progress: float) -> dict[str, float]: ...

    def gradient_probe(self, rollout: Rollout) -> tuple[Tensor, SampleLosses]:
        """Indices of the rollout's real transitions, and the training losses of any of them; changes nothing."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class PolicyLearner(Learner, Protocol):
    """A learner whose policy is a distribution over actions."""

    def policy_parameters(self, observations: Tensor) -> Tensor:
        """[B, P] parameters of the distribution in each state; draws no random number."""
        ...


class Signal(Protocol):
    """Looks at a learner around an update and says one number. It only looks: nothing it does changes training."""

    @property
    def name(self) -> str: ...

    def observe(self, learner: Learner, rollout: Rollout) -> Any:
        """A look before the update, to be handed to `reading`."""
        ...

    def reading(self, look: Any, learner: Learner) -> float | None:
        """The number, after the update; None where there is nothing to compare with yet."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Scaler(Protocol):
    """Turns readings of a signal into the next batch plan."""

    def plan(self, progress: float) -> BatchPlan: ...

    def adjust(self, reading: float) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
