"""Envs whose every answer is checked, single or all of a batch at once, and whose failures say where they happened."""

import math
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Space

from swell.config.own_envs import kwargs_of
from swell.envs.capture import capture, restore
from swell.envs.contract import EnvBatch
from swell.envs.ids import env_family
from swell.envs.own import make_own, own_maker, wrapped
from swell.envs.spaces import (
    ActionDecoder,
    BadAnswerError,
    ObservationEncoder,
    all_finite,
    allows_an_action,
    checked_mask,
    first_not_finite,
    mask_sizes,
)
from swell.errors import ConfigError, EnvironmentFailedError, SwellError

LARGEST_REWARD = 1e18
"""The square of more than 1.8e19 is no 32-bit float: the loss would be infinite, and the network be blamed for it."""


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Encodes observations and raises EnvironmentFailedError for anything that an env must not do.

    Gymnasium checks the first step only, and its worker processes pass NaNs and even observations of the wrong shape.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], index: int, env_id: str, has_masks: bool = False) -> None:
        super().__init__(env)
        self._index = index
        self._env_id = env_id
        self._steps = 0
        self._mask_sizes = mask_sizes(env.action_space) if has_masks else ()
        self._encoder = ObservationEncoder(env.observation_space, env_id, sum(self._mask_sizes))
        self._decoder = ActionDecoder(env.action_space)
        self.observation_space = self._encoder.space
        self.action_space = self._decoder.space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        try:
            observation, info = self.env.reset(seed=seed, options=options)
            return self._encoded(observation, info, is_over=False), {}
        except Exception as error:
            raise self._failure(error) from error

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Of the infos only the mask is read, and goes with the observation; workers would have to send the rest."""
        self._steps += 1
        try:
            observation, reward, terminated, truncated, info = self.env.step(self._decoder.decode(action))
            score = _checked_reward(reward)
            is_terminal, out_of_time = _checked_flag(terminated), _checked_flag(truncated)
            array = self._encoded(observation, info, is_over=is_terminal or out_of_time)
            return array, score, is_terminal, out_of_time, {}
        except Exception as error:
            raise self._failure(error) from error

    def _encoded(self, observation: Any, info: dict[str, Any], is_over: bool) -> np.ndarray:
        if not self._mask_sizes:
            return self._encoder.encode(observation)
        if "action_mask" not in info:
            raise BadAnswerError("expected action_mask in the info of every reset and step, as in the first one")
        mask = checked_mask(info["action_mask"], self._mask_sizes)
        if not allows_an_action(mask, self._mask_sizes):
            if not is_over:
                raise BadAnswerError("expected an action_mask that allows an action, got only zeros")
            mask[:] = True  # there is nothing left to do, and no value to be read off what may not be done
        return self._encoder.encode_masked(observation, mask)

    @property
    def saved_state(self) -> dict[str, Any]:
        """A property, because that is what gymnasium's workers let one read and write from outside."""
        return {"steps": self._steps, "env": capture(self.env)}

    @saved_state.setter
    def saved_state(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]
        restore(self.env, state["env"])

    @property
    def place(self) -> str:
        """Which env it is, and at which step, for messages."""
        return f"{self._env_id}: env {self._index} at step {self._steps}"

    def _failure(self, error: Exception) -> EnvironmentFailedError:
        where = f"{self._env_id}: env {self._index} failed at step {self._steps}"
        return EnvironmentFailedError(f"{where}: {one_line(error)}")


@cache
def gives_masks(settings: EnvBatch) -> bool:
    """Whether the first info of such an env has an action_mask, for actions that can be left out.

    An env of its own is asked, so that those of a run start as they always did. Of Gymnasium's own only the small texts
    have masks.
    """
    spec = gymnasium.registry.get(settings.env)
    if spec is not None and re.match(r"gymnasium\.envs\.(?!toy_text)", str(spec.entry_point)):
        return False
    env = make_checked(settings, 0).env
    try:
        return bool(mask_sizes(env.action_space)) and "action_mask" in env.reset(seed=0)[1]
    except Exception as error:
        raise EnvironmentFailedError(f"{settings.env}: env 0 failed at step 0: {one_line(error)}") from error
    finally:
        env.close()


def make_checked(settings: EnvBatch, index: int) -> CheckedEnv:
    """Builds one env; only the first one renders."""
    options = gymnasium_options(settings if index == 0 else replace(settings, render_mode=None))
    with naming_construction(settings.env):
        if env_family(settings.env) == "mujoco":
            from swell.envs.mujoco import route_mujoco_warnings

            route_mujoco_warnings()
        maker = own_maker(settings.env)
        if maker is None:
            env = gymnasium.make(settings.env, disable_env_checker=True, **options)
        else:
            env = make_own(maker, settings if index == 0 else replace(settings, render_mode=None))
        env = wrapped(env, settings.wrappers)
    return CheckedEnv(env, index, settings.env, settings.has_masks)


def gymnasium_options(settings: EnvBatch) -> dict[str, Any]:
    """What Gymnasium's `make` and `make_vec` are told; an option that is not set stays the env's own."""
    options = {"max_episode_steps": settings.max_episode_steps, "render_mode": settings.render_mode}
    given = {name: value for name, value in options.items() if value is not None}
    return {**kwargs_of(settings.env_kwargs), **given}


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

    @property
    def place(self) -> str:
        """Which envs they are, and at which step, for messages."""
        return f"{self._settings.env}: envs at step {self._steps}"

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
        if (too_large := np.abs(scores) > LARGEST_REWARD).any():
            first = float(scores[too_large][0])
            raise self._failure(_too_large(first), np.where(too_large, np.inf, 0.0))
        return scores

    def _failure(self, what: str, rows: np.ndarray | None = None) -> EnvironmentFailedError:
        env = "envs" if rows is None else f"env {np.argwhere(~np.isfinite(rows))[0][0]}"
        return EnvironmentFailedError(f"{self._settings.env}: {env} failed at step {self._steps}: {what}")


@contextmanager
def naming_construction(env_id: str) -> Generator[None]:
    """Turns what goes wrong while an env is made into errors of one line."""
    try:
        yield
    except SwellError:
        raise
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
    if abs(score) > LARGEST_REWARD:
        raise BadAnswerError(_too_large(score))
    return score


def _too_large(reward: float) -> str:
    return f"expected a reward within ±{LARGEST_REWARD:g}, of which a loss can take the square, got {reward:g}"


def _checked_flag(flag: Any) -> bool:
    if flag is True or flag is False:
        return flag
    if not isinstance(flag, np.bool_):
        raise BadAnswerError(f"expected terminated and truncated to be booleans, got {repr(flag)[:80]}")
    return bool(flag)
