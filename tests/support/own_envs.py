"""Envs as a user would write them: a function, masks, images next to vectors, wrappers."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

ACTIONS, STEPS = 8, 10
BEST = STEPS * 5 / 7
"""Mean return of the best policy with masks: the larger of two different numbers of 0..7 is 5 in the mean."""


class TwoDoors(gymnasium.Env):
    """Two of eight doors are open, which the observation does not show; door a is worth a / 7.

    With masks a closed door is an error; without them it ends the episode.
    """

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(ACTIONS)

    def __init__(self, masked=True):
        self.masked = masked
        self.is_open = np.zeros(ACTIONS, bool)
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.seen()

    def seen(self):
        self.is_open[:] = False
        self.is_open[self.np_random.choice(ACTIONS, 2, replace=False)] = True
        info = {"action_mask": self.is_open.astype(np.int8)} if self.masked else {}
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), info

    def step(self, action):
        if not self.is_open[action]:
            assert not self.masked, f"door {action} is closed"
            return np.zeros(2, np.float32), 0.0, True, False, {}
        self.count += 1
        observation, info = self.seen()
        return observation, action / (ACTIONS - 1), self.count == STEPS, False, info


class TwoLocks(TwoDoors):
    """Two choices of four and of eight; the first may not be even, the second only one of two doors."""

    action_space = MultiDiscrete([4, ACTIONS])

    def seen(self):
        observation, info = super().seen()
        return observation, {"action_mask": (np.array([0, 1, 0, 1], np.int8), info["action_mask"])}

    def step(self, action):
        assert action[0] in (1, 3)
        return super().step(action[1])


class Camera(gymnasium.Env):
    """An image whose bright half says the action to take, beside a vector that says nothing."""

    observation_space = Dict(
        camera=Box(0, 255, (6, 6, 3), np.uint8), place=Dict(speed=Box(-1, 1, (2,), np.float32), gear=Discrete(3))
    )
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.seen(), {}

    def seen(self):
        self.side = int(self.np_random.integers(2))
        camera = np.zeros((6, 6, 3), np.uint8)
        camera[:, 3 * self.side : 3 * self.side + 3] = 255
        speed = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"camera": camera, "place": {"speed": speed, "gear": int(self.np_random.integers(3))}}

    def step(self, action):
        reward = float(action == self.side)
        self.count += 1
        return self.seen(), reward, self.count == STEPS, False, {}


def make_cartpole(length=0.5, render_mode=None):
    env = gymnasium.make("CartPole-v1", render_mode=render_mode)
    env.unwrapped.length = length
    return env


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2.0 * reward


class Shifted(gymnasium.RewardWrapper):
    def reward(self, reward):
        return reward + 1.0


not_callable = 3


def make_text():
    return "no env"
