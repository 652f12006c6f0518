"""The greedy evaluation of a policy: how many episodes it plays, and at which length it cuts one off."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swell.collect.collector import Played, play_episodes
from swell.collect.episodes import EpisodeStatistics
from swell.config.run_config import RunConfig
from swell.config.seeds import derive_seed
from swell.display.console import Display
from swell.display.evaluating import show_evaluation
from swell.envs import VectorEnv, make_envs
from swell.memory.planner import EVALUATION_ENVS
from swell.memory.system import give_back_freed_memory
from swell.runs.build import BuiltRun
from swell.runs.interrupt import StopRequest

FEWEST_EPISODES = 10
"""Of an evaluation that nobody has asked to be as long as it is: below, its mean says little."""
LONGEST_EPISODE = 27_000
"""Half an hour of Atari, the longest episode that any env of Swell's own has."""


class StoppedEvaluationError(Exception):
    """A signal came in the middle of an evaluation."""


class Evaluator:
    """Scores the agent of a run in the middle of its training."""

    def __init__(self, config: RunConfig, parts: BuiltRun, display: Display) -> None:
        self._config, self._parts, self._display = config, parts, display
        self._has_told_of_few_episodes = False

    def score(self, stop: StopRequest) -> dict[str, Any]:
        """A line of evaluations.jsonl. A signal ends it with a StoppedEvaluationError."""
        give_back_freed_memory()  # its envs would come on top of what the update left behind
        config, parts = self._config, self._parts
        env_steps = parts.collector.env_steps
        # A seed of its own for each evaluation, apart from training's.
        seed = derive_seed(config.seed, "evaluation", env_steps)
        episodes = episodes_to_play(config, parts.collector.episodes, env_steps)
        self._tell_of_few_episodes(episodes)

        def told(finished: int, steps: int) -> None:
            show_played(finished, episodes, steps)
            if stop.signal_number:
                raise StoppedEvaluationError

        with show_evaluation(self._display) as show_played:
            played = greedy_episodes(parts.learner.greedy_actions, config, parts.device, episodes, seed, told)
        return score_of(played, env_steps)

    def _tell_of_few_episodes(self, episodes: int) -> None:
        """Once: an evaluation is shorter than most are, and nobody has asked for that."""
        most = self._config.most_evaluation_episodes
        if episodes < most and not self._has_told_of_few_episodes:
            self._has_told_of_few_episodes = True
            self._display.message(
                f"evaluating {episodes} episodes, as {most} may take more steps than the training; "
                "--evaluation-episodes asks for more"
            )


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
