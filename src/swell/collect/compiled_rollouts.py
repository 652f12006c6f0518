"""Rollouts without Python between their steps: compiled envs, played by a compiled policy. It imports numba."""

import math

import numpy as np

from swell.collect.buffer import RolloutBuffer
from swell.collect.episodes import EpisodeStatistics
from swell.envs.compiled_envs import CompiledEnvs
from swell.kernels.actors import PolicyActor, QActor
from swell.kernels.rollouts import Envs, Episodes, GreedyActs, PolicyActs, Rows, greedy_rollout, policy_rollout


class CompiledRollouts:
    """Plays the envs with an actor, into the memory of a buffer and of the statistics of episodes."""

    def __init__(
        self,
        actor: QActor | PolicyActor,
        envs: CompiledEnvs,
        buffer: RolloutBuffer,
        episodes: EpisodeStatistics,
        max_horizon: int,
    ) -> None:
        count, width = envs.num_envs, math.prod(envs.observation_space.shape or ())
        self._actor, self._played, self._buffer, self._statistics = actor, envs, buffer, episodes
        self._envs = Envs(
            *(envs.kind, envs.limit, envs.clips_rewards, envs.states, envs.elapsed, envs.random_states),
            choices=np.zeros(count, np.int64),
            forces=np.zeros((count, 1), np.float32),
            scores=np.zeros(count),
            finals=np.zeros((count, width), np.float32),
        )
        most = max_horizon * count
        self._rows = Rows(
            *buffer.arrays(actor.actions),
            final_observations=np.empty((most, width), np.float32),
            final_indices=np.empty(most, np.int64),
        )
        self._episodes = Episodes(*episodes.in_flight, np.empty(most), np.empty(most, np.int64))

    def play(self, steps: int, progress: np.ndarray) -> None:
        """So many steps; `progress` [T] is that of the run before each."""
        actor = self._actor
        fixed = (self._envs, self._rows, self._episodes, steps)
        if isinstance(actor, QActor):
            epsilons = np.array([actor.epsilon(done) for done in progress])
            acts = GreedyActs(actor.explores, actor.random_actions, epsilons, actor.values, actor.actions)
            ended, cut = greedy_rollout(actor.part.network, actor.room, actor.part.heads[0], acts, *fixed)
        else:
            drawn = (actor.noise, actor.parameters, actor.values, actor.choices, actor.points)
            acts = PolicyActs(actor.center, actor.scale, *drawn, actor.low, actor.high, actor.clipped)
            ended, cut = policy_rollout(actor.part.network, actor.room, actor.heads, acts, *fixed)
        self._played.require_finite(self._rows.rewards[:steps], steps)
        self._statistics.extend(self._episodes.ended_returns[:ended], self._episodes.ended_lengths[:ended])
        self._buffer.filled_by_itself(steps, self._rows.final_observations[:cut], self._rows.final_indices[:cut])
