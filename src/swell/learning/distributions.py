"""Action distributions: a batch of parameters in, actions and what can be said of them out.

Written out instead of taken from `torch.distributions`: acting on a few envs is a handful of tiny operations, and the
argument checks of a general library cost more than they do.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor

from swell.errors import ConfigError
from swell.ranks import drawn
from swell.types import Distribution, PolicyView

KindName = Literal["categorical", "multi-categorical", "gaussian"]
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Categorical:
    """One of A actions; `parameters` [B, A] are logits, actions are long [B]."""

    def __init__(self, parameters: Tensor) -> None:
        self.log_probs = parameters.log_softmax(-1)

    def sample(self, generator: Generator) -> Tensor:
        return _perturbed(self.log_probs, generator).argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1)

    def kl(self, other: Self) -> Tensor:
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)


class MultiCategorical:
    """K independent choices, the i-th one of A_i; `parameters` [B, ΣA_i] are logits, actions are long [B, K]."""

    def __init__(self, parameters: Tensor, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        parts = parameters.split(sizes, -1)
        self.log_probs = torch.cat([part.log_softmax(-1) for part in parts], -1)

    def sample(self, generator: Generator) -> Tensor:
        return self._best(_perturbed(self.log_probs, generator))

    def log_prob(self, actions: Tensor) -> Tensor:
        parts = self.log_probs.split(self.sizes, -1)
        chosen = [part.gather(-1, action) for part, action in zip(parts, actions.split(1, -1), strict=True)]
        return torch.cat(chosen, -1).sum(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def mode(self) -> Tensor:
        return self._best(self.log_probs)

    def kl(self, other: Self) -> Tensor:
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)

    def _best(self, scores: Tensor) -> Tensor:
        return torch.stack([part.argmax(-1) for part in scores.split(self.sizes, -1)], -1)


class DiagonalGaussian:
    """d independent normal components; `parameters` [B, 2d] are means then log standard deviations.

    Actions are float [B, d] and not clipped: the log-probability of a clipped action would be that of another one.
    """

    def __init__(self, parameters: Tensor) -> None:
        self.mean, self.log_std = parameters.chunk(2, -1)

    def sample(self, generator: Generator) -> Tensor:
        mean = self.mean.detach()
        noise = _noise(torch.randn, mean, generator)
        return torch.addcmul(mean, self.log_std.detach().exp(), noise.to(mean.device))

    def log_prob(self, actions: Tensor) -> Tensor:
        standardized = (actions - self.mean) * torch.exp(-self.log_std)
        return -(0.5 * standardized.square() + self.log_std).sum(-1) - HALF_LOG_TWO_PI * self.mean.shape[-1]

    def entropy(self) -> Tensor:
        return self.log_std.sum(-1) + (0.5 + HALF_LOG_TWO_PI) * self.log_std.shape[-1]

    def mode(self) -> Tensor:
        return self.mean

    def kl(self, other: Self) -> Tensor:
        """Σ_i log(σ'/σ) + (σ² + (μ − μ')²) / 2σ'² − ½, where the primed one is `other`."""
        log_ratio = self.log_std - other.log_std
        distance = (self.mean - other.mean) * torch.exp(-other.log_std)
        return (0.5 * (torch.exp(2.0 * log_ratio) + distance.square() - 1.0) - log_ratio).sum(-1)


@dataclass(frozen=True)
class ActionKind:
    """How a flat vector of parameters becomes a distribution of actions."""

    name: KindName
    sizes: tuple[int, ...]
    """categorical: (A,); multi-categorical: (A_1, …, A_K); gaussian: (d,)."""

    @property
    def num_parameters(self) -> int:
        return 2 * sum(self.sizes) if self.name == "gaussian" else sum(self.sizes)

    @property
    def is_continuous(self) -> bool:
        return self.name == "gaussian"

    def distribution(self, parameters: Tensor) -> Distribution:
        if self.name == "categorical":
            return Categorical(parameters)
        if self.name == "multi-categorical":
            return MultiCategorical(parameters, self.sizes)
        return DiagonalGaussian(parameters)


@dataclass(frozen=True)
class ActionSpace:
    """How a policy's distribution meets the actions that an env takes."""

    kind: ActionKind
    shape: tuple[int, ...] = ()
    """Of one env's continuous action."""
    low: Tensor | None = None
    """[d] the smallest continuous action, flattened; None for discrete actions."""
    high: Tensor | None = None

    def for_env(self, actions: Tensor) -> Tensor:
        """Continuous actions are clipped to their box; the policy keeps and learns from the unclipped ones."""
        if self.low is None:
            return actions
        return actions.clamp(self.low, self.high).unflatten(1, self.shape)


def make_action_space(space: spaces.Space, device: torch.device | str = "cpu") -> ActionSpace:
    """How a policy sees the actions of an env."""
    if isinstance(space, spaces.Discrete):
        return ActionSpace(ActionKind("categorical", (int(space.n),)))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return ActionSpace(ActionKind("multi-categorical", tuple(map(int, space.nvec))))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return ActionSpace(ActionKind("multi-categorical", (2,) * space.shape[0]))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.shape:
        low, high = (
            torch.from_numpy(bound.astype(np.float32)).flatten().to(device) for bound in (space.low, space.high)
        )
        return ActionSpace(ActionKind("gaussian", (low.numel(),)), space.shape, low, high)
    raise ConfigError(f"actions must be Discrete, MultiDiscrete, MultiBinary or a Box of floats, got {space}")


def categorical_view(logits: Tensor, actions: Tensor | None = None) -> PolicyView:
    """What a policy with these logits [M, A] says; `actions` [M] are those that were taken, if that is to be known."""
    kind = ActionKind("categorical", (logits.shape[-1],))
    return _view(kind, logits, actions)


def multi_categorical_view(logits: Sequence[Tensor], actions: Tensor | None = None) -> PolicyView:
    """What a policy of K independent choices says, of logits [M, A_i] each; `actions` [M, K] are those taken."""
    kind = ActionKind("multi-categorical", tuple(part.shape[-1] for part in logits))
    return _view(kind, torch.cat(list(logits), dim=-1), actions)


def gaussian_view(mean: Tensor, log_std: Tensor, actions: Tensor | None = None) -> PolicyView:
    """What a Gaussian policy with these means [M, d] says; `log_std` is [M, d] or [d], `actions` [M, d]."""
    kind = ActionKind("gaussian", (mean.shape[-1],))
    return _view(kind, torch.cat((mean, log_std.expand_as(mean)), dim=-1), actions)


def _view(kind: ActionKind, parameters: Tensor, actions: Tensor | None) -> PolicyView:
    distribution = kind.distribution(parameters.detach())
    log_probs = None if actions is None else distribution.log_prob(actions)
    # A copy: what a network returns may be overwritten by its next pass, and a view has to outlive an update.
    return PolicyView(distribution.mode().clone(), parameters.detach().clone(), kind, log_probs)


def _perturbed(log_probs: Tensor, generator: Generator) -> Tensor:
    """Scores whose largest is at i with probability p_i: log p + Gumbel noise, −log(−log u)."""
    uniform = _noise(torch.rand, log_probs, generator)
    return log_probs.detach() - uniform.log_().neg_().log_().to(log_probs.device)


def _noise(draw: Callable[..., Tensor], like: Tensor, generator: Generator) -> Tensor:
    """[B, …] of the CPU, for the rows of this process."""
    shape, dtype = like.shape[1:], like.dtype
    return drawn(lambda rows: draw((rows, *shape), generator=generator, dtype=dtype), like.shape[0])
