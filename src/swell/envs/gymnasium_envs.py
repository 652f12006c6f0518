"""Gymnasium ids: the env's own vectorised version, or single envs one after the other in this process."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from swell.envs.capture import capture, restore
from swell.envs.checked import (
    CheckedVectorEnvs,
    gives_masks,
    gymnasium_options,
    make_checked,
    naming_construction,
    one_line,
)
from swell.envs.contract import EnvBatch, EnvStep, ResumeTier, VectorEnv, env_seeds, learner_rewards, same_step
from swell.envs.own import own_maker, require_distinct
from swell.envs.resume_check import resume, resume_tier_of, save


def make_gymnasium_envs(settings: EnvBatch) -> VectorEnv:
    """In worker processes if asked for; else the env's own vectorised version; else one after the other."""
    settings = replace(settings, has_masks=gives_masks(_alike(settings)))
    if settings.async_envs:
        from swell.envs.workers import WorkerEnvs

        return WorkerEnvs(settings)
    if has_entry_point(settings):
        return EntryPointEnvs(settings)
    return LoopedEnvs(settings)


def _alike(settings: EnvBatch) -> EnvBatch:
    """One and the same for all batches of envs that are made in the same way."""
    return EnvBatch(settings.env, env_kwargs=settings.env_kwargs, wrappers=settings.wrappers)


class LoopedEnvs:
    """A loop of our own rather than gymnasium's SyncVectorEnv: less to save, and no infos to merge."""

    def __init__(self, settings: EnvBatch) -> None:
        self.num_envs = settings.num_envs
        self._settings = settings
        self._envs = [make_checked(settings, index) for index in range(settings.num_envs)]
        require_distinct([env.env for env in self._envs], settings.env)
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space
        self._shape = (self.num_envs, *(self.observation_space.shape or ()))
        self._dtype = self.observation_space.dtype

    @property
    def resume_tier(self) -> ResumeTier:
        return resume_tier_of(LoopedEnvs, self._settings)

    def reset(self) -> np.ndarray:
        return self.restart(resume_count=0)

    def step(self, actions: np.ndarray) -> EnvStep:
        final_observations = np.empty(self._shape, dtype=self._dtype)
        scores = np.empty(self.num_envs)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        ended: list[int] = []
        for index, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            final_observations[index], scores[index], is_terminal, out_of_time, _ = env.step(action)
            if is_terminal or out_of_time:
                (terminated if is_terminal else truncated)[index] = True
                ended.append(index)
        observations = self._reset_ended(final_observations, ended)
        return same_step(observations, final_observations, scores, terminated, truncated, self._settings.clip_rewards)

    def render(self) -> np.ndarray | None:
        return None if self._settings.render_mode is None else np.asarray(self._envs[0].render())

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def saved_state(self) -> dict[str, Any]:
        return {"envs": [env.saved_state for env in self._envs]}

    def restore_state(self, state: dict[str, Any]) -> None:
        self.reset()  # some envs create what is restored only here
        for env, env_state in zip(self._envs, state["envs"], strict=True):
            env.saved_state = env_state

    def state_dict(self) -> dict[str, Any]:
        return save(self)

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
        return resume(self, state, resume_count)

    def restart(self, resume_count: int) -> np.ndarray:
        seeds = env_seeds(self._settings.seed, resume_count, self.num_envs, self._settings.first_env)
        return np.stack([env.reset(seed=seed)[0] for env, seed in zip(self._envs, seeds, strict=True)])

    def _reset_ended(self, observations: np.ndarray, ended: list[int]) -> np.ndarray:
        """Resets these envs; the given observations are left as they are."""
        if not ended:
            return observations
        observations = observations.copy()
        for index in ended:
            observations[index] = self._envs[index].reset()[0]
        return observations


class EntryPointEnvs(CheckedVectorEnvs):
    """The env's own vector env, whichever way it resets itself."""

    shares_generator = True
    """All envs draw from one, so what an env plays depends on how many others there are."""

    def __init__(self, settings: EnvBatch) -> None:
        self._envs = _make_vector_env(settings)
        self._resets_at_once = self._envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
        super().__init__(settings, self._envs.single_observation_space, self._envs.single_action_space)

    @property
    def resume_tier(self) -> ResumeTier:
        return resume_tier_of(EntryPointEnvs, self._settings)

    def reset(self) -> np.ndarray:
        return self.restart(resume_count=0)

    def step(self, actions: np.ndarray) -> EnvStep:
        self._steps += 1
        try:
            observations, rewards, terminated, truncated, info = self._envs.step(self._decoder.decode(actions))
        except Exception as error:
            raise self._failure(one_line(error)) from error
        reset_rows, self._ended = self._reset_rows(), terminated | truncated
        observations = self._checked_observations(observations)
        scores = self._checked_rewards(rewards)
        if np.count_nonzero(reset_rows):
            scores[reset_rows] = 0.0
        return EnvStep(
            observations=observations,
            rewards=learner_rewards(scores, self._settings.clip_rewards),
            terminated=terminated,
            truncated=truncated > terminated,  # and not terminated
            valid=~reset_rows,
            scores=scores,
            episode_over=self._ended.copy(),
            final_observations=self._final_observations(observations, info) if self._resets_at_once else None,
        )

    def _reset_rows(self) -> np.ndarray:
        return np.zeros_like(self._ended) if self._resets_at_once else self._ended

    def render(self) -> np.ndarray | None:
        if self._settings.render_mode is None:
            return None
        frames: Any = self._envs.render()
        return np.asarray(frames[0])

    def close(self) -> None:
        self._envs.close()

    def saved_state(self) -> dict[str, Any]:
        return {"steps": self._steps, "ended": self._ended.copy(), "envs": capture(self._envs)}

    def restore_state(self, state: dict[str, Any]) -> None:
        self.reset()  # some envs create what is restored only here
        self._steps = state["steps"]
        self._ended = state["ended"].copy()
        restore(self._envs, state["envs"])

    def state_dict(self) -> dict[str, Any]:
        return save(self)

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
        return resume(self, state, resume_count)

    def restart(self, resume_count: int) -> np.ndarray:
        (seed,) = env_seeds(self._settings.seed, resume_count, 1, self._settings.first_env)
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        try:
            observations, _ = self._envs.reset(seed=seed)
        except Exception as error:
            raise self._failure(one_line(error)) from error
        return self._checked_observations(observations)

    def _final_observations(self, observations: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        if not self._ended.any():
            return observations
        final_observations = observations.copy()
        for index in np.flatnonzero(self._ended):
            final_observations[index] = self._encoder.encode(info["final_obs"][index])
        return final_observations


def has_entry_point(settings: EnvBatch) -> bool:
    """Whether there is a vectorised version that can be used here: its observations are arrays and it resets itself.

    What is asked of single envs, their arguments, wrappers and windows, a vectorised version may not have.
    """
    asks_for_single = settings.env_kwargs or settings.wrappers or settings.has_masks or settings.render_mode == "human"
    if asks_for_single or own_maker(settings.env) is not None:
        return False
    if gymnasium.spec(settings.env.rpartition(":")[2]).vector_entry_point is None:
        return False
    envs = _make_vector_env(replace(settings, num_envs=1))
    usable = isinstance(envs.single_observation_space, Box)
    usable &= envs.metadata.get("autoreset_mode") in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
    envs.close()
    return usable


def _make_vector_env(settings: EnvBatch) -> Any:
    with naming_construction(settings.env):
        return gymnasium.make_vec(settings.env, settings.num_envs, "vector_entry_point", **gymnasium_options(settings))
