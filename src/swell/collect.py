"""From envs and a learner to rollouts, and from envs and a policy to scores."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from swell.envs.base import EnvStep, VectorEnv
from swell.staleness import RolloutDelay
from swell.types import Learner, Rollout

EPISODES_REMEMBERED = 100


class Collector:
    """Steps the envs with the learner's exploring policy and keeps the clock of the run: `env_steps`.

    Buffers are allocated once for the longest rollout and sliced, so a growing batch allocates nothing. A rollout is
    therefore a view that the next call overwrites.
    """

    def __init__(self, envs: VectorEnv, max_horizon: int, device: torch.device, staleness: int = 0) -> None:
        self.envs = envs
        self.env_steps = 0
        self.num_rollouts = 0
        self.episodes = EpisodeStatistics(envs.num_envs)
        self.seconds = {"act": 0.0, "env": 0.0}
        self._device = device
        first = envs.reset()
        self._buffer = _RolloutBuffer(max_horizon, first, device)
        self._observations = torch.from_numpy(first).to(device)
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
        buffer = self._buffer
        buffer.start(self._observations)
        for step in range(horizon):
            started = time.perf_counter()
            actions, recorded = learner.act(self._observations, self.env_steps / total_env_steps)
            acted = time.perf_counter()
            result = self.envs.step(actions.cpu().numpy())
            self.seconds["act"] += acted - started
            self.seconds["env"] += time.perf_counter() - acted
            self._observations = torch.from_numpy(result.observations).to(self._device)
            buffer.add(step, actions, recorded, result, self._observations)
            self.episodes.add(result)
            self.env_steps += int(result.valid.sum())
            if self.env_steps >= total_env_steps:
                break
        self.num_rollouts += 1
        return buffer.rollout()

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "num_rollouts": self.num_rollouts,
            "seconds": dict(self.seconds),
            "observations": self._observations,
            "episodes": self.episodes.state_dict(),
            "envs": self.envs.state_dict(),
            "delay": None if self._delay is None else self._delay.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], resume_count: int = 0) -> bool:
        """True if every episode in flight goes on; False if the envs could only be started anew."""
        self.env_steps = state["env_steps"]
        self.num_rollouts = state["num_rollouts"]
        self.seconds = dict(state["seconds"])
        self.episodes.load_state_dict(state["episodes"])
        if self._delay is not None:
            self._delay.load_state_dict(state["delay"], self._device)
        restarted = self.envs.load_state_dict(state["envs"], resume_count)
        if restarted is None:
            self._observations = state["observations"].to(self._device)
            return True
        self._observations = torch.from_numpy(restarted).to(self._device)
        self.episodes.abandon()
        return False


class EpisodeStatistics:
    """Unclipped returns and lengths of whole episodes, as an onlooker would count them."""

    def __init__(self, num_envs: int) -> None:
        self.finished = 0
        self.abandoned = 0
        self.returns: deque[float] = deque(maxlen=EPISODES_REMEMBERED)
        self.lengths: deque[int] = deque(maxlen=EPISODES_REMEMBERED)
        self._return_so_far = np.zeros(num_envs)
        self._length_so_far = np.zeros(num_envs, dtype=np.int64)

    def add(self, result: EnvStep) -> None:
        self._return_so_far += result.scores
        self._length_so_far += result.valid
        if not result.episode_over.any():
            return
        over = result.episode_over
        self.finished += int(over.sum())
        self.returns.extend(self._return_so_far[over].tolist())
        self.lengths.extend(self._length_so_far[over].tolist())
        self._return_so_far[over] = 0.0
        self._length_so_far[over] = 0

    def abandon(self) -> None:
        """Forgets the episodes in flight: they are not counted in any mean."""
        self.abandoned += int((self._length_so_far > 0).sum())
        self._return_so_far[:] = 0.0
        self._length_so_far[:] = 0

    def summary(self) -> dict[str, float]:
        """Means over the last 100 episodes; absent until one has finished."""
        if not self.returns:
            return {"episodes": self.finished}
        return {
            "episodes": self.finished,
            "episode_return": float(np.mean(self.returns)),
            "episode_length": float(np.mean(self.lengths)),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "finished": self.finished,
            "abandoned": self.abandoned,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "return_so_far": self._return_so_far.copy(),
            "length_so_far": self._length_so_far.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.finished = state["finished"]
        self.abandoned = state["abandoned"]
        self.returns.extend(state["returns"])
        self.lengths.extend(state["lengths"])
        self._return_so_far[:] = state["return_so_far"]
        self._length_so_far[:] = state["length_so_far"]


class _RolloutBuffer:
    """Memory for one rollout of up to `max_horizon` steps."""

    def __init__(self, max_horizon: int, observations: np.ndarray, device: torch.device) -> None:
        num_envs = observations.shape[0]
        row = torch.from_numpy(observations)
        shape = (max_horizon, num_envs)
        self._observations = torch.empty((max_horizon + 1, *row.shape), dtype=row.dtype, device=device)
        self._rewards = torch.empty(shape, device=device)
        self._terminated = torch.empty(shape, dtype=torch.bool, device=device)
        self._truncated = torch.empty(shape, dtype=torch.bool, device=device)
        self._valid = torch.empty(shape, dtype=torch.bool, device=device)
        self._recorded: dict[str, Tensor] = {}
        self._finals: list[Tensor] = []
        self._final_indices: list[int] = []
        self._filled = 0
        self._device = device

    def start(self, observations: Tensor) -> None:
        self._observations[0] = observations
        self._finals.clear()
        self._final_indices.clear()
        self._filled = 0

    def add(
        self, step: int, actions: Tensor, recorded: dict[str, Tensor], result: EnvStep, observations: Tensor
    ) -> None:
        self._observations[step + 1] = observations
        self._rewards[step] = torch.from_numpy(result.rewards)
        self._terminated[step] = torch.from_numpy(result.terminated)
        self._truncated[step] = torch.from_numpy(result.truncated)
        self._valid[step] = torch.from_numpy(result.valid)
        for name, row in {"actions": actions, **recorded}.items():
            if name not in self._recorded:
                self._recorded[name] = torch.empty(
                    (self._rewards.shape[0], *row.shape), dtype=row.dtype, device=self._device
                )
            self._recorded[name][step] = row
        self._keep_final_observations(step, result)
        self._filled = step + 1

    def _keep_final_observations(self, step: int, result: EnvStep) -> None:
        if result.final_observations is None or not result.truncated.any():
            return
        for env in np.flatnonzero(result.truncated):
            self._finals.append(torch.tensor(result.final_observations[env]))
            self._final_indices.append(step * len(result.truncated) + int(env))

    def rollout(self) -> Rollout:
        filled = self._filled
        recorded = {name: rows[:filled] for name, rows in self._recorded.items()}
        finals = torch.stack(self._finals) if self._finals else self._observations[:0, 0]
        return Rollout(
            observations=self._observations[: filled + 1],
            actions=recorded.pop("actions"),
            rewards=self._rewards[:filled],
            terminated=self._terminated[:filled],
            truncated=self._truncated[:filled],
            valid=self._valid[:filled],
            final_observations=finals.to(self._device),
            final_indices=torch.tensor(self._final_indices, dtype=torch.long, device=self._device),
            recorded=recorded,
        )


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
