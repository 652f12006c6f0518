"""The greedy evaluation of a policy: how many episodes it plays, and at which length it cuts one off."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swell.collect.collector import Played, play_episodes
from swell.collect.episodes import EpisodeStatistics
from swell.config.run_config import RunConfig
from swell.envs import VectorEnv, make_envs
from swell.memory.planner import EVALUATION_ENVS

FEWEST_EPISODES = 10
"""Of an evaluation that nobody has asked to be as long as it is: below, its mean says little."""
LONGEST_EPISODE = 27_000
"""Half an hour of Atari, the longest episode that any env of Swell's own has."""


def episodes_to_play(config: RunConfig, training: EpisodeStatistics, env_steps: int) -> int:
    """What was asked for or, where nothing was, no more than would take as many steps as the whole training.

    Lengths are those of training's last episodes; where none has ended, each env has played one that is at least as
    long as its part of the steps. Nothing here goes by a clock, so a resumed run plays as many.
    """
    if config.evaluation_episodes is not None:
        return config.evaluation_episodes
    length = float(np.mean(training.lengths)) if training.lengths else env_steps / config.num_envs
    affordable = int(config.total_env_steps / max(length, 1.0))
    return min(config.most_evaluation_episodes, max(affordable, FEWEST_EPISODES))


def longest_episode(config: RunConfig) -> int:
    """Steps after which an evaluation waits no longer for the end of an episode."""
    return config.max_evaluation_steps or max(LONGEST_EPISODE, config.max_episode_steps or 0)


def greedy_episodes(
    act: Callable[[Tensor], Tensor],
    config: RunConfig,
    device: torch.device,
    episodes: int,
    seed: int,
    told: Callable[[int, int], None] | None = None,
) -> Played:
    """Whole episodes on envs of their own; lost lives do not end a game here. `told` is `play_episodes`'s."""
    envs = evaluation_envs(config, min(episodes, EVALUATION_ENVS), seed)
    try:
        return play_episodes(act, envs, episodes, device, longest_episode(config), told)
    finally:
        envs.close()


def evaluation_envs(config: RunConfig, num_envs: int, seed: int, render_mode: str | None = None) -> VectorEnv:
    # In one process: a worker for each of a hundred envs would cost more than it brings.
    changes = {"num_envs": num_envs, "episodic_life": False, "async_envs": False}
    return make_envs(config, seed=seed, threads=config.threads, render_mode=render_mode, **changes)


def score_of(played: Played, env_steps: int) -> dict[str, Any]:
    """A line of evaluations.jsonl, for weights of that age."""
    return {
        "env_steps": env_steps,
        "episodes": len(played.returns),
        "cut_episodes": played.cut,
        "mean_return": float(np.mean(played.returns)),
        "std_return": float(np.std(played.returns)),
        "returns": played.returns,
    }
