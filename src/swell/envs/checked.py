"""Envs whose every answer is checked, single or all of a batch at once, and whose failures say where they happened."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Space

from swell.envs.capture import capture, restore
from swell.envs.contract import EnvBatch
from swell.envs.ids import env_family
from swell.envs.spaces import ActionDecoder, BadAnswerError, ObservationEncoder, all_finite, first_not_finite
from swell.errors import ConfigError, EnvironmentFailedError


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Encodes observations and raises EnvironmentFailedError for anything that an env must not do.

    Gymnasium checks the first step only, and its worker processes pass NaNs and even observations of the wrong shape.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], index: int, env_id: str) -> None:
        super().__init__(env)
        self._index = index
        self._env_id = env_id
        self._steps = 0
        self._encoder = ObservationEncoder(env.observation_space, env_id)
        self._decoder = ActionDecoder(env.action_space)
        self.observation_space = self._encoder.space
        self.action_space = self._decoder.space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        try:
            observation, _ = self.env.reset(seed=seed, options=options)
            return self._encoder.encode(observation), {}
        except Exception as error:
            raise self._failure(error) from error

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """The infos are dropped: nobody reads them, and workers would have to send them."""
        self._steps += 1
        try:
            observation, reward, terminated, truncated, _ = self.env.step(self._decoder.decode(action))
            score = _checked_reward(reward)
            return self._encoder.encode(observation), score, _checked_flag(terminated), _checked_flag(truncated), {}
        except Exception as error:
            raise self._failure(error) from error

    @property
    def saved_state(self) -> dict[str, Any]:
        """A property, because that is what gymnasium's workers let one read and write from outside."""
        return {"steps": self._steps, "env": capture(self.env)}

    @saved_state.setter
    def saved_state(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]
        restore(self.env, state["env"])

    def _failure(self, error: Exception) -> EnvironmentFailedError:
        where = f"{self._env_id}: env {self._index} failed at step {self._steps}"
        return EnvironmentFailedError(f"{where}: {one_line(error)}")


def make_checked(settings: EnvBatch, index: int) -> CheckedEnv:
    """Builds one env; only the first one renders."""
    options = gymnasium_options(settings if index == 0 else replace(settings, render_mode=None))
    with naming_construction(settings.env):
        if env_family(settings.env) == "mujoco":
            from swell.envs.mujoco import route_mujoco_warnings

            route_mujoco_warnings()
        env = gymnasium.make(settings.env, disable_env_checker=True, **options)
    return CheckedEnv(env, index, settings.env)


def gymnasium_options(settings: EnvBatch) -> dict[str, Any]:
    """What Gymnasium's `make` and `make_vec` are told; an option that is not set stays the env's own."""
    options = {"max_episode_steps": settings.max_episode_steps, "render_mode": settings.render_mode}
    return {name: value for name, value in options.items() if value is not None}


class CheckedVectorEnvs:
    """What backends that step all envs in one call share: their spaces, and the checks of all rows at once."""

    def __init__(self, settings: EnvBatch, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.num_envs = settings.num_envs
        self._settings = settings
        self._encoder = ObservationEncoder(observation_space, settings.env)
        self._decoder = ActionDecoder(action_space)
        self.observation_space: Space[Any] = self._encoder.space
        self.action_space = self._decoder.space
        self._ended = np.zeros(settings.num_envs, dtype=np.bool_)
        self._steps = 0

    def _checked_observations(self, observations: Any) -> np.ndarray:
        try:
            rows = self._encoder.encode_rows(np.asarray(observations), self.num_envs)
        except BadAnswerError as error:
            raise self._failure(str(error)) from error
        if not all_finite(rows):
            raise self._failure(f"expected finite observations, got {first_not_finite(rows)}", rows)
        return rows

    def _checked_rewards(self, rewards: Any) -> np.ndarray:
        """As float64 and as a copy, since some envs hand out the memory that they write into."""
        scores = np.array(rewards, dtype=np.float64)
        if scores.shape != (self.num_envs,):
            raise self._failure(f"expected rewards of shape {(self.num_envs,)}, got {scores.shape}")
        if not all_finite(scores):
            raise self._failure(f"expected finite rewards, got {first_not_finite(scores)}", scores)
        return scores

    def _failure(self, what: str, rows: np.ndarray | None = None) -> EnvironmentFailedError:
        env = "envs" if rows is None else f"env {np.argwhere(~np.isfinite(rows))[0][0]}"
        return EnvironmentFailedError(f"{self._settings.env}: {env} failed at step {self._steps}: {what}")


@contextmanager
def naming_construction(env_id: str) -> Generator[None]:
    """Turns what goes wrong while an env is made into errors of one line."""
    try:
        yield
    except DependencyNotInstalled as error:
        raise ConfigError(f"{env_id}: {one_line(error)}") from error
    except Exception as error:
        raise EnvironmentFailedError(f"{env_id} could not be made: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """An error as one line; ours already say what happened, others are named by their type."""
    message = " ".join(str(error).split())
    return message if isinstance(error, BadAnswerError) else f"{type(error).__name__}: {message}"


def _checked_reward(reward: Any) -> float:
    try:
        score = float(reward)
    except (TypeError, ValueError):
        raise BadAnswerError(f"expected a number as reward, got {repr(reward)[:80]}") from None
    if not math.isfinite(score):
        raise BadAnswerError(f"expected a finite reward, got {score}")
    return score


def _checked_flag(flag: Any) -> bool:
    if flag is True or flag is False:
        return flag
    if not isinstance(flag, np.bool_):
        raise BadAnswerError(f"expected terminated and truncated to be booleans, got {repr(flag)[:80]}")
    return bool(flag)
