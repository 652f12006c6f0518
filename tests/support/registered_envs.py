"""Small envs with known behaviour, registered under SwellTest/."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

FAULTS = (
    "raise",
    "nan_observation",
    "huge_observation",
    "nan_reward",
    "huge_reward",
    "text_reward",
    "integer_flag",
    "scalar_observation",
    "wrong_shape",
    "hang",
)

ACTION_SPACES = {
    "Float32": Box(np.float32([-1, -2]), np.float32([1, 2])),
    "Float64": Box(-0.1, 0.1, (2,), np.float64),
    "Matrix": Box(-1, 1, (2, 3), np.float32),
    "Choices": MultiDiscrete([2, 3], start=[0, 5]),
    "ChoiceTable": MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32),
    "Switches": MultiBinary(3),
}


class CountingEnv(gymnasium.Env):
    """Observes [seed, episode, step]; episodes last 3, 5, 3, 5 ... steps; the reward is the action plus the step."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)
    action_space = Discrete(10)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.first_seed = 0
        self.episode = -1
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        if seed is not None:
            self.first_seed, self.episode = seed % 1000, -1
        self.episode += 1
        self.count = 0
        return self.observe(), {}

    def step(self, action):
        self.count += 1
        return self.observe(), float(action + self.count), self.count >= 3 + 2 * (self.episode % 2), False, {}

    def observe(self):
        return np.array([self.first_seed, self.episode, self.count], dtype=np.float64)


class FaultyEnv(CountingEnv):
    """Goes wrong at step 4, in the way that its name says."""

    def __init__(self, fault: str, at_step: int = 4) -> None:
        super().__init__()
        self.fault, self.at_step, self.total = fault, at_step, 0

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.total += 1
        if self.total < self.at_step:
            return observation, reward, terminated, truncated, info
        match self.fault:
            case "raise":
                raise RuntimeError("the motor\nis on fire")
            case "nan_observation":
                observation[1] = np.nan
            case "huge_observation":
                observation[1] = 1e300
            case "nan_reward":
                reward = float("nan")
            case "huge_reward":
                reward = -1e300
            case "text_reward":
                reward = "good"
            case "integer_flag":
                terminated = 1
            case "scalar_observation":
                observation = 0.0
            case "wrong_shape":
                observation = np.zeros(4)
            case "hang":
                time.sleep(3600)
        return observation, reward, terminated, truncated, info


class HiddenStateEnv(CountingEnv):
    """Has state that no attribute holds: in a closure."""

    def __init__(self) -> None:
        super().__init__()
        steps = [0]

        def advance() -> int:
            steps[0] += 1
            return steps[0]

        self.advance = advance

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(self.advance()), terminated, truncated, info


class NestedSpaceEnv(CountingEnv):
    """Observes a dict and counts actions from 5."""

    observation_space = Dict({"level": Discrete(3), "speed": Box(-1, 1, (2,), np.float32)})
    action_space = Discrete(2, start=5)

    def observe(self):
        return {"level": np.int64(self.count % 3), "speed": np.full(2, 0.5, np.float32)}


class ActionEnv(CountingEnv):
    """Observes the action that it got, which must be in its action space, and then writes into it."""

    def __init__(self, action_space: str) -> None:
        super().__init__()
        self.action_space = ACTION_SPACES[action_space]
        self.last_action = np.zeros(self.action_space.shape)
        self.observation_space = Box(-np.inf, np.inf, (self.last_action.size,), np.float64)

    def step(self, action):
        if not isinstance(action, np.ndarray) or action.dtype != self.action_space.dtype:
            raise TypeError(f"not an array of {self.action_space.dtype}: {action!r}")
        if not self.action_space.contains(action):
            raise ValueError(f"not in {self.action_space}: {action}")
        self.last_action = action.astype(np.float64)
        self.count += 1
        action[...] = 0
        return self.observe(), 0.0, False, False, {}

    def observe(self):
        return self.last_action.ravel()


def next_step_vector_env(num_envs: int, max_episode_steps: int | None = None) -> SyncVectorEnv:
    return _synced(num_envs, max_episode_steps, AutoresetMode.NEXT_STEP)


def same_step_vector_env(num_envs: int, max_episode_steps: int | None = None) -> SyncVectorEnv:
    return _synced(num_envs, max_episode_steps, AutoresetMode.SAME_STEP)


def action_vector_env(num_envs: int, action_space: str) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: ActionEnv(action_space)] * num_envs)


def _synced(num_envs: int, limit: int | None, mode: AutoresetMode) -> SyncVectorEnv:
    def make_one():
        env = CountingEnv()
        return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)

    return SyncVectorEnv([make_one] * num_envs, autoreset_mode=mode)


class OneFaultVectorEnv(SyncVectorEnv):
    """A vectorised env in which env 1 observes or earns NaN from step 2 on."""

    def __init__(self, num_envs: int, fault: str) -> None:
        super().__init__([CountingEnv] * num_envs)
        self.fault, self.total = fault, 0

    def step(self, actions):
        observations, rewards, terminated, truncated, info = super().step(actions)
        self.total += 1
        if self.total == 2 and self.fault == "observation":
            observations[1, 2] = np.inf
        if self.total == 2 and self.fault == "reward":
            rewards[1] = np.nan
        if self.total == 2 and self.fault == "size":
            rewards[1] = 1e300
        return observations, rewards, terminated, truncated, info


def register_all() -> None:
    for name, entry_point, vector_entry_point in (
        ("Counting", CountingEnv, None),
        ("CountingNextStep", CountingEnv, next_step_vector_env),
        ("CountingSameStep", CountingEnv, same_step_vector_env),
        ("HiddenState", HiddenStateEnv, None),
        ("NestedSpace", NestedSpaceEnv, None),
    ):
        gymnasium.register(f"SwellTest/{name}-v0", entry_point, vector_entry_point=vector_entry_point)
    for name in ACTION_SPACES:
        gymnasium.register(f"SwellTest/Action{name}-v0", ActionEnv, kwargs={"action_space": name})
        gymnasium.register(
            f"SwellTest/ActionVector{name}-v0",
            ActionEnv,
            vector_entry_point=action_vector_env,
            kwargs={"action_space": name},
        )
    for fault in ("observation", "reward", "size"):
        gymnasium.register(
            f"SwellTest/VectorFault{fault.title()}-v0",
            CountingEnv,
            vector_entry_point=lambda num_envs, fault=fault: OneFaultVectorEnv(num_envs, fault),
        )
    for fault in FAULTS:
        gymnasium.register(f"SwellTest/Faulty_{fault}-v0", FaultyEnv, kwargs={"fault": fault})
