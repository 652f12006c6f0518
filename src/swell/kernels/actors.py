"""Compiled acting through a rollout: noise is drawn once for all its steps, and each step is one call."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Generator, Tensor

from swell.kernels import acting
from swell.kernels.layers import Room
from swell.kernels.models import CompiledPolicy, CompiledQNetwork, Part
from swell.ranks import drawn

NONE = np.empty(0, np.float32)


class _Actor:
    """What all actors share: room for the observations of all envs, in the form that a network takes."""

    def __init__(self, part: Part, num_envs: int, is_bytes: bool) -> None:
        self.num_envs = num_envs
        self.part = part
        self.room: Room = part.make_room(num_envs)
        self._divides = is_bytes and not part.takes_pixels

    def _see(self, observations: np.ndarray) -> None:
        rows = observations.reshape(self.num_envs, -1)
        if self.part.takes_pixels:
            self.room.pixels[:] = rows.view(np.uint8)
        else:
            self.room.inputs[:] = rows
        if self._divides:
            self.room.inputs[:] /= 255.0

    def _drawn(self, draw: Callable[[int], Tensor]) -> np.ndarray:
        """[T, N, …] random numbers."""
        return drawn(draw, self.num_envs, dimension=1).contiguous().numpy()


class QActor(_Actor):
    """ε-greedy actions of a compiled Q-network."""

    def __init__(
        self,
        model: CompiledQNetwork,
        num_actions: int,
        max_horizon: int,
        num_envs: int,
        generator: Generator,
        epsilon: Callable[[float], float],
    ) -> None:
        super().__init__(model.part, num_envs, model.is_bytes)
        self._num_actions = num_actions
        self._generator = generator
        self.epsilon = epsilon
        """From progress to the share of random actions."""
        values = torch.empty((max_horizon, num_envs))
        self.recorded: dict[str, Tensor] = {"values": values}
        self.values = values.numpy()
        self.actions = np.empty((max_horizon, num_envs), np.int64)
        self.explores = self.random_actions = NONE

    def start(self, horizon: int) -> None:
        """Draws what all steps of a rollout need."""
        self.explores = self._drawn(lambda envs: torch.rand((horizon, envs), generator=self._generator))
        self.random_actions = self._drawn(
            lambda envs: torch.randint(self._num_actions, (horizon, envs), generator=self._generator)
        )

    def act(self, step: int, observations: np.ndarray, progress: float) -> np.ndarray:
        self._see(observations)
        actions = self.actions[step]
        acting.act_greedily(
            self.part.network,
            self.room,
            self.part.heads[0],
            self.num_envs,
            self.explores[step],
            self.random_actions[step],
            self.epsilon(progress),
            self.values[step],
            actions,
        )
        return actions

    def finish(self, states: Tensor) -> None:
        """Nothing is left to say: the values of the states are those of the best actions."""


class PolicyActor(_Actor):
    """Sampled actions of a compiled policy, with the distributions and values of that moment."""

    def __init__(
        self,
        model: CompiledPolicy,
        bounds: tuple[Tensor, Tensor] | None,
        action_shape: tuple[int, ...],
        max_horizon: int,
        num_envs: int,
        generator: Generator,
    ) -> None:
        """`bounds` are those of continuous actions, `action_shape` that of one action."""
        # Values with a network of their own can wait until there are many of them to pass through it at once.
        part = model.policy_part if model.is_dual else model.both
        super().__init__(part, num_envs, model.is_bytes)
        self._generator = generator
        self._model = model
        self.heads = model.heads._replace(policy=part.heads[0], value=-1) if model.is_dual else model.heads
        self._is_continuous = bounds is not None
        normalizer = model.normalizer
        self.center = NONE if normalizer is None else normalizer.center.numpy().reshape(-1)
        self.scale = NONE if normalizer is None else normalizer.scale.numpy().reshape(-1)
        outputs, rows = part.widths[0], (max_horizon, num_envs)
        parameters, values = torch.empty((*rows, outputs * (1 + self._is_continuous))), torch.empty(rows)
        points = torch.empty((*rows, outputs if self._is_continuous else 0))
        self.recorded: dict[str, Tensor] = {"values": values, "parameters": parameters}
        if self._is_continuous:
            self.recorded["sampled_actions"] = points
        self.parameters, self.values, self.points = parameters.numpy(), values.numpy(), points.numpy()
        self.choices = np.empty((*rows, model.heads.sizes.size), np.int64)
        self.low, self.high = (NONE, NONE) if bounds is None else (bound.numpy() for bound in bounds)
        self.clipped = np.empty(points.shape, np.float32)
        flat = self.clipped if self._is_continuous else self.choices
        self.actions = flat.reshape(*rows, *action_shape)
        self.noise = np.empty((0, num_envs, outputs), np.float32)

    def start(self, horizon: int) -> None:
        """Draws what all steps of a rollout need."""
        draw = torch.randn if self._is_continuous else torch.rand
        outputs = self.noise.shape[2]
        self.noise = self._drawn(lambda envs: draw((horizon, envs, outputs), generator=self._generator))
        if not self._is_continuous:
            acting.make_gumbel(self.noise.reshape(-1))

    def act(self, step: int, observations: np.ndarray, progress: float) -> np.ndarray:
        self._see(observations)
        acting.act_in_row(
            self.part.network,
            self.room,
            self.heads,
            step,
            self.center,
            self.scale,
            self.noise,
            self.parameters,
            self.values,
            self.choices,
            self.points,
            self.low,
            self.high,
            self.clipped,
        )
        return self.actions[step]

    def finish(self, states: Tensor) -> None:
        """After the last step: what can be said of all states [T, N, ...] at once."""
        model = self._model
        if model.is_dual:
            values = self.values[: states.shape[0]].reshape(-1, 1)
            model.value_part.pass_through(*model.inputs(states.flatten(0, 1), model.value_part), values)
