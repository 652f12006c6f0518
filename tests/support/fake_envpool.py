"""A stand-in for the envpool package: scripted envs that reset in the step after an end, as EnvPool's do."""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from registered_envs import CountingEnv

LIVES_LOST_AT = (2, 4)
GAME_OVER_AT = 6


class FakePool:
    """Envs that observe [seed, episode, step] in float64, as CountingEnv does."""

    def __init__(self, task: str, num_envs: int, seed: list[int], max_episode_steps: int = 1000, **options: Any):
        assert len(seed) == num_envs
        self.task, self.options, self.seeds, self.limit = task, options, seed, max_episode_steps
        self.games = [CountingEnv() for _ in seed]
        self.ended = np.zeros(num_envs, dtype=bool)
        self.fault: Exception | float | None = None
        self.closed = False

    def reset(self):
        rows = [game.reset(seed=seed)[0] for game, seed in zip(self.games, self.seeds, strict=True)]
        return np.array(rows), self.info(np.zeros(len(rows), dtype=np.int32))

    def step(self, actions: np.ndarray):
        if isinstance(self.fault, Exception):
            raise self.fault
        answers = [self.step_one(index, action) for index, action in enumerate(actions)]
        observations, rewards, over, out_of_time = map(np.array, zip(*answers, strict=True))
        self.ended = over | out_of_time
        rewards = rewards.astype(np.float32)
        if self.fault is not None:
            rewards[1] = self.fault
        return observations, rewards, over & ~out_of_time, out_of_time, self.info(over.astype(np.int32))

    def step_one(self, index: int, action):
        game = self.games[index]
        if self.ended[index]:
            return game.reset()[0], 0.0, False, False
        observation, reward, over, _, _ = game.step(action)
        if "noop_max" in self.options:
            over = game.count >= GAME_OVER_AT
        return observation, reward, over, game.count >= self.limit

    def info(self, game_over: np.ndarray) -> dict[str, np.ndarray]:
        if "noop_max" not in self.options:
            return {}
        counts = np.array([game.count for game in self.games])
        lives = 3 - sum((counts >= lost).astype(np.int32) for lost in LIVES_LOST_AT) - game_over
        return {"lives": lives, "terminated": game_over, "reward": np.full(len(counts), np.nan)}

    def render(self) -> np.ndarray:
        return np.zeros((1, 4, 6, 3), dtype=np.uint8)

    def close(self) -> None:
        self.closed = True


def fake_envpool() -> Any:
    """The module; `pools` lists what was made with it, `missing` is what making an env raises."""
    module: Any = ModuleType("envpool")
    module.pools = []
    module.missing = None

    def make_spec(task: str, **options: Any) -> SimpleNamespace:
        if module.missing is not None:
            raise module.missing
        observation_space = Box(-np.inf, np.inf, (3,), np.float64)
        return SimpleNamespace(gymnasium_observation_space=observation_space, gymnasium_action_space=Discrete(10))

    def make_gymnasium(task: str, **options: Any) -> FakePool:
        module.pools.append(FakePool(task, **options))
        return module.pools[-1]

    module.make_spec, module.make_gymnasium = make_spec, make_gymnasium
    module.list_all_envs = lambda: ["Pong-v5", "HalfCheetah-v5", "CoinrunHard-v0"]
    return module
