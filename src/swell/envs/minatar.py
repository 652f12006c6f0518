"""MinAtar, looped in one process over the games themselves: no per-env wrapper, bool observations channel first."""

from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from minatar import Environment

from swell.envs.capture import capture, restore
from swell.envs.contract import EnvBatch, EnvStep, ResumeTier, env_seeds, same_step
from swell.envs.ids import minatar_game

STICKY_ACTIONS = 0.1
"""MinAtar's own chance that an action is repeated, used unless the settings ask for a larger one than zero."""

MAX_EPISODE_STEPS = 5000
"""MinAtar has no time limit, and a good policy can play some of its games for ever."""

PIXELS_PER_CELL = 24


class MinAtarEnvs:
    """A batch of one MinAtar game. `-v1` has the game's minimal action set, `-v0` all six actions."""

    resume_tier: ResumeTier = "exact"

    def __init__(self, settings: EnvBatch) -> None:
        self.num_envs = settings.num_envs
        self._settings = settings
        self._limit = settings.max_episode_steps or MAX_EPISODE_STEPS
        game, sticky_actions = minatar_game(settings.env), settings.sticky_actions or STICKY_ACTIONS
        self._games = [Environment(game, sticky_action_prob=sticky_actions) for _ in range(settings.num_envs)]
        first = self._games[0]
        self._actions = first.minimal_action_set() if settings.env.endswith("-v1") else list(range(6))
        self._episode_steps = np.zeros(settings.num_envs, dtype=np.int64)
        self.observation_space: Space[Any] = Box(0, 1, (first.n_channels, 10, 10), dtype=cast(Any, np.bool_))
        self.action_space: Space[Any] = Discrete(len(self._actions))

    def reset(self) -> np.ndarray:
        return self.restart(resume_count=0)

    def step(self, actions: np.ndarray) -> EnvStep:
        played = [self._actions[action] for action in actions.tolist()]
        outcomes = [game.act(action) for game, action in zip(self._games, played, strict=True)]
        scores = np.array([reward for reward, _ in outcomes], dtype=np.float64)
        terminated = np.array([over for _, over in outcomes], dtype=np.bool_)
        self._episode_steps += 1
        truncated = (self._episode_steps >= self._limit) & ~terminated
        final_observations = self._observe()
        observations = self._replace_ended(final_observations, terminated | truncated)
        return same_step(observations, final_observations, scores, terminated, truncated, self._settings.clip_rewards)

    def render(self) -> np.ndarray | None:
        if self._settings.render_mode is None:
            return None
        return _image(self._games[0].state())

    def close(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {"episode_steps": self._episode_steps.copy(), "games": [capture(game) for game in self._games]}

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
        self.reset()  # seeds each game, after which it shares one generator with its Environment
        self._episode_steps[:] = state["episode_steps"]
        for game, game_state in zip(self._games, state["games"], strict=True):
            restore(game, game_state)
        return None

    def restart(self, resume_count: int) -> np.ndarray:
        seeds = env_seeds(self._settings.seed, resume_count, self.num_envs, self._settings.first_env)
        for game, seed in zip(self._games, seeds, strict=True):
            game.seed(seed)
            game.reset()
            game.last_action = 0
        self._episode_steps[:] = 0
        return self._observe()

    def _observe(self) -> np.ndarray:
        observations = np.array([game.env.state() for game in self._games])
        return np.ascontiguousarray(observations.transpose(0, 3, 1, 2))

    def _replace_ended(self, observations: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """Starts a new game wherever one ended; the given observations are left as they are."""
        if not ended.any():
            return observations
        observations = observations.copy()
        for index in np.flatnonzero(ended):
            self._games[index].reset()
            observations[index] = self._games[index].state().transpose(2, 0, 1)
        self._episode_steps[ended] = 0
        return observations


def _image(state: np.ndarray) -> np.ndarray:
    """An RGB image of a [10, 10, channels] state; each channel has a colour of its own."""
    channels = state.shape[2]
    hues = np.linspace(0, 2 * np.pi, channels, endpoint=False)[:, None] + np.array([0, 2, 4]) * np.pi / 3
    colours = np.vstack([np.zeros(3), 155 + 100 * np.cos(hues)]).astype(np.uint8)
    topmost = np.max(state * (np.arange(channels) + 1), axis=2)
    return colours[topmost].repeat(PIXELS_PER_CELL, axis=0).repeat(PIXELS_PER_CELL, axis=1)
