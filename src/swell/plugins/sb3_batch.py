"""What an on-policy algorithm of Stable-Baselines3 needs so that a BatchController can move its batch.

Public attributes alone, and none of sb3-contrib is imported: a buffer with masks or with recurrent states says so.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor

from swell.batch.controller import BatchController
from swell.batch.signals import BehavioralDivergence, KLDivergence
from swell.errors import ConfigError
from swell.plugins.options import is_due
from swell.plugins.views import view_of
from swell.types import PolicyView

READ_WITHOUT_LOG_PROBS = (KLDivergence, BehavioralDivergence)
"""Signals that do without those of the actions taken, which are a good part of a look at a few states."""


def even_minibatch_size(samples: int, nominal: int) -> int:
    """The size within a quarter of `nominal` that leaves the last minibatch of an epoch least short of the others.

    SB3 cuts an epoch into minibatches of one size and trains on what remains as it is, be it a single sample.
    """
    if samples <= nominal:
        return nominal

    def last(size: int) -> float:
        return 1.0 if samples % size == 0 else samples % size / size

    sizes = range(max(1, math.ceil(0.75 * nominal)), math.floor(1.25 * nominal) + 1)
    return max(sizes, key=lambda size: (last(size), -abs(size - nominal)))


class RolloutPolicy:
    """What a policy says on some states of a rollout, the same at each call.

    The states are copied at the first call, before the update: it flattens the buffer in place.
    """

    def __init__(
        self, model: OnPolicyAlgorithm, probe_states: int, seed: tuple[int, ...], with_log_probs: bool = True
    ) -> None:
        self._model = model
        self._with_log_probs = with_log_probs
        self._probe_states = probe_states
        self._seed = seed
        self._rows: dict[str, Any] | None = None

    def __call__(self) -> PolicyView:
        policy = self._model.policy
        was_training = policy.training
        if was_training:
            policy.set_training_mode(False)  # running statistics and dropout must not notice
        try:
            return self._view()
        finally:
            if was_training:
                policy.set_training_mode(True)

    def _view(self) -> PolicyView:
        if self._rows is None:
            self._rows = self._draw()
        policy, rows, space = self._model.policy, self._rows, self._model.action_space
        made = policy.get_distribution(rows["observations"], *rows["also"])
        distribution = cast(Any, made[0] if isinstance(made, tuple) else made)
        # A copy: SB3 has one distribution object, and its next pass would change the parameters of this one.
        view = view_of(getattr(distribution, "distributions", None) or distribution.distribution)
        if self._with_log_probs:
            actions = rows["actions"].long().flatten() if isinstance(space, spaces.Discrete) else rows["actions"]
            view = dataclasses.replace(view, log_probs=distribution.log_prob(actions).detach().clone())
        if isinstance(space, spaces.Box) and not policy.squash_output:
            low, high = (torch.as_tensor(bound, device=policy.device).flatten() for bound in (space.low, space.high))
            view = dataclasses.replace(view, greedy_actions=view.greedy_actions.clamp(low, high))
        return view

    def _draw(self) -> dict[str, Any]:
        """Rows of the buffer, drawn by a generator of their own: numpy's global one shuffles minibatches."""
        buffer = cast(Any, self._model.rollout_buffer)
        total = buffer.buffer_size * buffer.n_envs
        chosen = np.arange(total)
        if total > self._probe_states:
            chosen = np.random.default_rng(self._seed).choice(total, self._probe_states, replace=False)
        steps, envs = np.divmod(chosen, buffer.n_envs)
        device = self._model.device

        def tensor(array: np.ndarray) -> Tensor:
            return torch.as_tensor(array, device=device)

        def states(array: np.ndarray) -> Tensor:
            """[T, layers, N, H] to [layers, M, H]: M sequences of a single step."""
            return tensor(array[steps, :, envs].transpose(1, 0, 2).copy())

        observations = buffer.observations
        if isinstance(observations, dict):
            observations = {name: array[steps, envs] for name, array in cast(dict[str, Any], observations).items()}
        else:
            observations = observations[steps, envs]
        also: list[Any] = []
        if hasattr(buffer, "action_masks"):
            also = [buffer.action_masks[steps, envs]]
        elif hasattr(buffer, "hidden_states_pi"):
            lstm_states = states(buffer.hidden_states_pi), states(buffer.cell_states_pi)
            also = [lstm_states, tensor(buffer.episode_starts[steps, envs])]
        actions = tensor(buffer.actions[steps, envs].astype(np.float32))
        return {"observations": obs_as_tensor(observations, device), "actions": actions, "also": also}


class MovingBatch:
    """A controller and the algorithm whose rollouts it sizes. State: the algorithm's `batch_state`, plain data."""

    def __init__(
        self,
        model: OnPolicyAlgorithm,
        controller: BatchController,
        *,
        every: int | None,
        probe_states: int,
        seed: int,
    ) -> None:
        if not isinstance(probe_states, int) or probe_states < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"probe_states must be a whole number of at least 1, got {probe_states!r}")
        self.controller = controller
        self._model = model
        self._every = every
        self._probe_states = probe_states
        self._seed = seed
        self._minibatch_size: int | None = getattr(model, "batch_size", None)
        """As the user gave it; A2C has none."""
        if state := vars(model).get("batch_state"):
            controller.load_state_dict(state["controller"])
            if state["minibatch_size_used"] == self._minibatch_size:  # otherwise the user has set another since
                self._minibatch_size = state["minibatch_size"]
        if controller.horizon * model.n_envs < 2 and getattr(model, "normalize_advantage", False):
            raise ConfigError(
                f"min_steps must make rollouts of at least 2 samples, got {controller.horizon} with {model.n_envs} env"
            )
        self._save()

    def look(self) -> Callable[[], float | None]:
        """Before an update, on a full buffer; what it returns is called after the update, and says the reading."""
        buffer, env_steps = self._model.rollout_buffer, self._model.num_timesteps
        if not is_due(self._every, env_steps, buffer.buffer_size * buffer.n_envs):
            return lambda: None
        seed = (self._seed, env_steps)
        with_log_probs = type(self.controller.signal) not in READ_WITHOUT_LOG_PROBS
        finish = self.controller.look(RolloutPolicy(self._model, self._probe_states, seed, with_log_probs))

        def finish_and_save() -> float | None:
            reading = finish()
            self._save()
            return reading

        return finish_and_save

    def fit_minibatches(self) -> None:
        """Before an update: minibatches of about the size that the user wants, none of them tiny."""
        if self._minibatch_size is not None:
            buffer = self._model.rollout_buffer
            size = even_minibatch_size(buffer.buffer_size * buffer.n_envs, self._minibatch_size)
            vars(self._model)["batch_size"] = size
            self._save()

    def set_length(self) -> None:
        """Of the rollout after the one that is in the buffer, or after none."""
        self._model.n_steps = self.controller.horizon

    def fit_buffer(self) -> None:
        """Makes an empty buffer of that length."""
        buffer = cast(Any, self._model.rollout_buffer)
        buffer.buffer_size = self._model.n_steps
        if hasattr(buffer, "hidden_state_shape"):
            buffer.hidden_state_shape = (self._model.n_steps, *buffer.hidden_state_shape[1:])
        buffer.reset()

    def log(self, reading: float | None) -> None:
        """Beside what the update itself logged; `n_steps` is that of the rollout that comes now."""
        logger = self._model.logger
        logger.record("batch/n_steps", self._model.n_steps)
        logger.record("batch/size", self._model.n_steps * self._model.n_envs)
        if reading is not None:
            logger.record("batch/reading", reading)
        if self.controller.thresholds is not None:
            calm, volatile = self.controller.thresholds
            logger.record("batch/calm_reading", calm)
            logger.record("batch/volatile_reading", volatile)

    def _save(self) -> None:
        vars(self._model)["batch_state"] = {
            "controller": self.controller.state_dict(),
            "minibatch_size": self._minibatch_size,
            "minibatch_size_used": getattr(self._model, "batch_size", None),
        }
