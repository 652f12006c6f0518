"""From envs and a learner to rollouts, and from envs and a policy to scores."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swell.collect.buffer import GroupRows, RolloutBuffer
from swell.collect.delayed import RolloutDelay
from swell.collect.env_groups import EnvGroups, StepsBeside, StepsHere
from swell.collect.episodes import EpisodeStatistics
from swell.envs.contract import EnvStep, VectorEnv
from swell.types import Learner, Rollout


class Collector:
    """Steps the envs with the learner's exploring policy and keeps the clock of the run: `env_steps`.

    Given several groups of envs it acts for one while the others step. The groups take turns in a fixed order and end
    a rollout together, so a run does not depend on who is faster.

    Buffers are allocated once for the longest rollout and sliced, so a growing batch allocates nothing. A rollout is
    therefore a view that the next call overwrites.
    """

    def __init__(
        self, envs: VectorEnv | Sequence[VectorEnv], max_horizon: int, device: torch.device, staleness: int = 0
    ) -> None:
        self.envs = EnvGroups(envs if isinstance(envs, Sequence) else [envs])
        self.env_steps = 0
        self.num_rollouts = 0
        self.episodes = EpisodeStatistics(self.envs.num_envs)
        self.seconds = {"act": 0.0, "env": 0.0}
        self._device = device
        first = self.envs.reset()
        self._buffer = RolloutBuffer(max_horizon, first, device)
        self._groups = [
            _Group(steps, columns, GroupRows(self._buffer, columns))
            for steps, columns in zip(self.envs.steps, self.envs.columns, strict=True)
        ]
        for group in self._groups:
            group.rows.start_from(torch.from_numpy(first[group.columns]))
        self._delay = RolloutDelay(staleness) if staleness else None

    def collect(self, learner: Learner, horizon: int, total_env_steps: int) -> Rollout:
        """At most `horizon` steps of every env; fewer where the run's total is reached before.

        With a staleness of s it returns what it collected s calls ago, and the first call collects s + 1 times.
        """
        rollout = self._gather(learner, horizon, total_env_steps)
        if self._delay is None:
            return rollout
        self._delay.push(rollout)
        while not self._delay.is_full and self.env_steps < total_env_steps:
            self._delay.push(self._gather(learner, horizon, total_env_steps))
        return self._delay.pop()

    def _gather(self, learner: Learner, horizon: int, total_env_steps: int) -> Rollout:
        started, waited_before = time.perf_counter(), self.seconds["env"]
        self._finish_steps()  # of a call that was interrupted
        self._buffer.start()
        for group in self._groups:
            group.rows.start()
        for step in range(horizon):
            self._finish_step(self._groups[0])
            if step and self._is_over(total_env_steps):
                break
            # What the first group may know is what all are told: the others' last steps are still under way.
            progress = self.env_steps / total_env_steps
            for group in self._groups:
                self._finish_step(group)
                actions, recorded = learner.act(group.rows.observations, progress)
                group.act(actions.cpu().numpy(), recorded)
        self._finish_steps()
        self.num_rollouts += 1
        rollout = self._buffer.rollout(self._groups[0].rows.filled)
        waited = self.seconds["env"] - waited_before
        self.seconds["act"] += time.perf_counter() - started - waited
        return rollout

    def _is_over(self, total_env_steps: int) -> bool:
        """Whether the total is reached. Where steps under way may reach it, they are waited for."""
        under_way = sum(group.num_envs for group in self._groups if group.is_stepping)
        if self.env_steps + under_way < total_env_steps:
            return False
        self._finish_steps()
        return self.env_steps >= total_env_steps

    def _finish_steps(self) -> None:
        for group in self._groups:
            self._finish_step(group)

    def _finish_step(self, group: "_Group") -> None:
        """Waits for the group's step and takes in what came back; does nothing if none is under way."""
        if not group.is_stepping:
            return
        before = time.perf_counter()
        result = group.wait()
        self.seconds["env"] += time.perf_counter() - before
        group.rows.add_result(result)
        self.episodes.add(result, group.columns)
        self.env_steps += int(np.count_nonzero(result.valid))

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "num_rollouts": self.num_rollouts,
            "seconds": dict(self.seconds),
            "observations": torch.cat([group.rows.observations for group in self._groups]),
            "episodes": self.episodes.state_dict(),
            "envs": self.envs.state_dict(),
            "delay": None if self._delay is None else self._delay.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], resume_count: int = 0) -> bool:
        """True if every episode in flight goes on; False if some envs could only be started anew."""
        self.env_steps = state["env_steps"]
        self.num_rollouts = state["num_rollouts"]
        self.seconds = dict(state["seconds"])
        self.episodes.load_state_dict(state["episodes"])
        if self._delay is not None:
            self._delay.load_state_dict(state["delay"], self._device)
        restarted = self.envs.load_state_dict(state["envs"], resume_count)
        for group, observations in zip(self._groups, restarted, strict=True):
            if observations is None:
                group.rows.start_from(state["observations"][group.columns])
            else:
                group.rows.start_from(torch.from_numpy(observations))
                self.episodes.abandon(group.columns)
        return all(observations is None for observations in restarted)


class _Group:
    """A group of envs in the turn of the collector: how it steps, and where in a rollout it stands."""

    def __init__(self, steps: StepsHere | StepsBeside, columns: slice, rows: GroupRows) -> None:
        self.columns = columns
        self.num_envs: int = columns.stop - columns.start
        self.rows = rows
        self.is_stepping = False
        self._steps = steps

    def act(self, actions: np.ndarray, recorded: dict[str, Tensor]) -> None:
        self.rows.add_actions(actions, recorded)
        self._steps.start(actions)
        self.is_stepping = True

    def wait(self) -> EnvStep:
        self.is_stepping = False
        return self._steps.wait()


def play_episodes(
    policy: Callable[[Tensor], Tensor], envs: VectorEnv, episodes: int, device: torch.device
) -> list[float]:
    """Unclipped returns of `episodes` whole episodes.

    Every env plays its own share: taking the first to finish instead would favour short episodes.
    """
    share = np.full(envs.num_envs, episodes // envs.num_envs)
    share[: episodes % envs.num_envs] += 1
    returns: list[float] = []
    running = np.zeros(envs.num_envs)
    observations = envs.reset()
    while (share > 0).any():
        actions = policy(torch.from_numpy(observations).to(device))
        result = envs.step(actions.cpu().numpy())
        running += result.scores
        counted = result.episode_over & (share > 0)
        returns.extend(running[counted].tolist())
        share[counted] -= 1
        running[result.episode_over] = 0.0
        observations = result.observations
    return returns
