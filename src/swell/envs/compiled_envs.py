"""Classic control in machine code: the envs of Gymnasium, written again for numba and held to it by tests.

Importing this imports numba. Nothing that an env does here is Gymnasium's, except its spaces, its time limit and its
images.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space

from swell.envs.checked import gymnasium_options, naming_construction
from swell.envs.contract import EnvBatch, EnvStep, ResumeTier, env_seeds, learner_rewards
from swell.errors import EnvironmentFailedError
from swell.kernels import classic_control
from swell.kernels.classic_control import mixed, reset_envs, step_envs

KINDS = {
    "CartPole": classic_control.CARTPOLE,
    "Acrobot": classic_control.ACROBOT,
    "MountainCar": classic_control.MOUNTAIN_CAR,
    "MountainCarContinuous": classic_control.MOUNTAIN_CAR_CONTINUOUS,
    "Pendulum": classic_control.PENDULUM,
}


class CompiledEnvs:
    """A batch of one of these envs.

    `kind`, `limit` and the three arrays are public for rollouts that step the envs within a kernel of their own.
    """

    resume_tier: ResumeTier = "exact"
    is_compiled = True
    """A whole rollout may be played in one call; see `collect/compiled_rollouts.py`."""

    def __init__(self, settings: EnvBatch) -> None:
        self.num_envs = settings.num_envs
        self._settings = settings
        with naming_construction(settings.env):
            self._drawn = gymnasium.make(settings.env, disable_env_checker=True, **gymnasium_options(settings))
        self.observation_space: Space[Any] = self._drawn.observation_space
        self.action_space: Space[Any] = self._drawn.action_space
        self.clips_rewards = settings.clip_rewards
        self.is_continuous = isinstance(self.action_space, Box)
        self.kind = KINDS[settings.env.partition("-v")[0]]
        self.limit = (self._drawn.spec.max_episode_steps if self._drawn.spec else None) or 0
        self.states = np.zeros((self.num_envs, 4))
        self.elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self.random_states = np.zeros(self.num_envs, dtype=np.uint64)
        self._rows = (self.num_envs, *(self.observation_space.shape or ()))
        self._choices = np.zeros(self.num_envs, dtype=np.int64)
        self._forces = np.zeros((self.num_envs, 1), dtype=np.float32)
        self._steps = 0
        self._every = np.ones(self.num_envs, dtype=np.bool_)

    def reset(self) -> np.ndarray:
        return self.restart(resume_count=0)

    def restart(self, resume_count: int) -> np.ndarray:
        first = self._settings.first_env
        seeds = env_seeds(self._settings.seed, resume_count, self.num_envs, first)
        for env, seed in enumerate(seeds):  # two envs may get the same seed of 31 bits, so each adds its number
            self.random_states[env] = mixed(np.uint64(seed << 32 | first + env))
        observations = np.empty(self._rows, dtype=np.float32)
        reset_envs(self.kind, self.states, self.elapsed, self.random_states, observations)
        return observations

    def step(self, actions: np.ndarray) -> EnvStep:
        """The arrays are new in every step: who keeps them, keeps what they say."""
        taken = self._forces if self.is_continuous else self._choices
        if actions.shape != taken.shape:
            self._steps += 1
            raise self._failure(f"expected actions of shape {taken.shape}, got {actions.shape}")
        taken[:] = actions
        observations, finals = np.empty(self._rows, dtype=np.float32), np.empty(self._rows, dtype=np.float32)
        scores, terminated, truncated = np.empty(self.num_envs), np.empty_like(self._every), np.empty_like(self._every)
        step_envs(
            *(self.kind, self.limit, self.states, self.elapsed, self.random_states, self._choices, self._forces),
            *(observations, scores, terminated, truncated, finals),
        )
        self.require_finite(scores)
        return EnvStep(
            observations=observations,
            rewards=learner_rewards(scores, self._settings.clip_rewards),
            terminated=terminated,
            truncated=truncated,
            valid=self._every.copy(),
            scores=scores,
            episode_over=terminated | truncated,
            final_observations=finals,
        )

    def require_finite(self, rewards: np.ndarray, steps: int = 1) -> None:
        """After so many steps: every force is part of its reward, so one that is not finite shows there."""
        self._steps += steps
        if self.is_continuous and not np.isfinite(rewards).all():
            raise self._failure("expected finite actions")

    def render(self) -> np.ndarray | None:
        """Gymnasium's picture of the first env."""
        if self._settings.render_mode is None:
            return None
        drawn: Any = self._drawn.unwrapped
        drawn.reset()  # of Pendulum's, which then draws no arrow for a torque it was never told
        drawn.state = self.states[0, : len(drawn.state)].copy()
        return np.asarray(drawn.render())

    def close(self) -> None:
        self._drawn.close()

    def state_dict(self) -> dict[str, Any]:
        arrays = {"states": self.states, "elapsed": self.elapsed, "random_states": self.random_states}
        return {"steps": self._steps, **{name: array.copy() for name, array in arrays.items()}}

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
        self._steps = state["steps"]
        self.states[:] = state["states"]
        self.elapsed[:] = state["elapsed"]
        self.random_states[:] = state["random_states"]
        return None

    def _failure(self, what: str) -> EnvironmentFailedError:
        return EnvironmentFailedError(f"{self._settings.env}: envs failed at step {self._steps}: {what}")
