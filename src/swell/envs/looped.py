"""Gymnasium envs that step one after the other in this process."""

from typing import Any

import numpy as np

from swell.envs.checked import make_checked
from swell.envs.contract import EnvSettings, EnvStep, ResumeTier, env_seeds, same_step
from swell.envs.resume_check import resume, resume_tier_of, save


class LoopedEnvs:
    """A loop of our own rather than gymnasium's SyncVectorEnv: less to save, and no infos to merge."""

    def __init__(self, settings: EnvSettings) -> None:
        self.num_envs = settings.num_envs
        self._settings = settings
        self._envs = [make_checked(settings, index) for index in range(settings.num_envs)]
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space
        self._shape = (self.num_envs, *(self.observation_space.shape or ()))

    @property
    def resume_tier(self) -> ResumeTier:
        return resume_tier_of(LoopedEnvs, self._settings)

    def reset(self) -> np.ndarray:
        return self.restart(resume_count=0)

    def step(self, actions: np.ndarray) -> EnvStep:
        final_observations = np.empty(self._shape, dtype=self.observation_space.dtype)
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
        seeds = env_seeds(self._settings.seed, resume_count, self.num_envs)
        return np.stack([env.reset(seed=seed)[0] for env, seed in zip(self._envs, seeds, strict=True)])

    def _reset_ended(self, observations: np.ndarray, ended: list[int]) -> np.ndarray:
        """Resets these envs; the given observations are left as they are."""
        if not ended:
            return observations
        observations = observations.copy()
        for index in ended:
            observations[index] = self._envs[index].reset()[0]
        return observations
