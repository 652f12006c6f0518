"""One Gymnasium env whose every answer is checked, and whose failures say where they happened."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import DependencyNotInstalled

from swell.envs.capture import capture, restore
from swell.envs.contract import EnvSettings
from swell.envs.ids import env_family
from swell.envs.spaces import ActionDecoder, BadAnswerError, ObservationEncoder
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


def make_checked(settings: EnvSettings, index: int) -> CheckedEnv:
    """Builds one env; only the first one renders."""
    options: dict[str, Any] = {}
    if settings.max_episode_steps is not None:
        options["max_episode_steps"] = settings.max_episode_steps
    if settings.render_mode is not None and index == 0:
        options["render_mode"] = settings.render_mode
    with naming_construction(settings.env):
        if env_family(settings.env) == "mujoco":
            from swell.envs.mujoco import route_mujoco_warnings

            route_mujoco_warnings()
        env = gymnasium.make(settings.env, disable_env_checker=True, **options)
    return CheckedEnv(env, index, settings.env)


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
    if not isinstance(flag, (bool, np.bool_)):
        raise BadAnswerError(f"expected terminated and truncated to be booleans, got {repr(flag)[:80]}")
    return bool(flag)
