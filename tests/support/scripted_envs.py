"""Envs whose every step is known beforehand, for tests of the loop."""

import numpy as np
from gymnasium import spaces

from swell.envs import EnvStep


class ScriptedEnvs:
    """Each env counts its own steps: its observation is [env, episode, step] and its reward is the step.

    Env i's episodes last `3 + i` steps; every third one ends by a time limit.
    """

    resume_tier = "exact"

    def __init__(self, num_envs=2, next_step=False):
        self.num_envs = num_envs
        self.observation_space = spaces.Box(0, 1000, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.next_step = next_step
        self.actions_seen = []

    def reset(self):
        self.episode = np.zeros(self.num_envs, dtype=np.int64)
        self.count = np.zeros(self.num_envs, dtype=np.int64)
        self.pending = np.zeros(self.num_envs, dtype=bool)
        return self._observations()

    def _observations(self):
        return np.stack([np.arange(self.num_envs), self.episode, self.count], axis=1).astype(np.float32)

    def step(self, actions):
        self.actions_seen.append(np.array(actions))
        valid = ~self.pending
        self.episode += self.pending
        self.count = np.where(self.pending, 0, self.count + 1)
        over = valid & (self.count == 3 + np.arange(self.num_envs))
        truncated = over & (self.episode % 3 == 2)
        rewards = np.where(valid, self.count, 0).astype(np.float32)
        final = self._observations()
        if self.next_step:
            self.pending = over
        else:
            self.episode += over
            self.count = np.where(over, 0, self.count)
        return EnvStep(
            observations=self._observations(),
            rewards=rewards,
            terminated=over & ~truncated,
            truncated=truncated,
            valid=valid,
            scores=rewards.astype(np.float64),
            episode_over=over,
            final_observations=None if self.next_step else final,
        )

    def state_dict(self):
        return {"episode": self.episode.copy(), "count": self.count.copy(), "pending": self.pending.copy()}

    def load_state_dict(self, state, resume_count):
        self.episode, self.count, self.pending = state["episode"], state["count"], state["pending"]

    def render(self):
        return None

    def close(self):
        pass


class IdentityEnvs(ScriptedEnvs):
    """One-step episodes: the observation is one-hot, and only the action that it shows is rewarded."""

    def __init__(self, num_envs=16, num_actions=4, seed=0):
        super().__init__(num_envs)
        self.observation_space = spaces.Box(0, 1, (num_actions,), np.float32)
        self.action_space = spaces.Discrete(num_actions)
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.shown = self.random.integers(self.action_space.n, size=self.num_envs)
        return np.eye(self.action_space.n, dtype=np.float32)[self.shown]

    def step(self, actions):
        rewards = (actions == self.shown).astype(np.float32)
        everywhere, nowhere = np.ones(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        observations = self.reset()
        return EnvStep(
            observations, rewards, everywhere, nowhere, everywhere, rewards.astype(np.float64), everywhere, observations
        )
