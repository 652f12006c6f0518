"""From envs and a learner to rollouts, and from envs and a policy to scores."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from swell.collect.buffer import RolloutBuffer
from swell.collect.delayed import RolloutDelay
from swell.collect.episodes import EpisodeStatistics
from swell.envs.contract import VectorEnv
from swell.errors import ConfigError
from swell.ranks import is_alone, place, total
from swell.types import Actor, HasActor, Learner, Rollout, most_rows

if TYPE_CHECKING:
    from swell.collect.compiled_rollouts import CompiledRollouts


class Collector:
    """Steps the envs with the learner's exploring policy and keeps the clock of the run: `env_steps`.

    Buffers are allocated once for the longest rollout and sliced, so a growing batch allocates nothing. A rollout is
    therefore a view that the next call overwrites.
    """

    def __init__(
        self,
        envs: VectorEnv,
        max_horizon: int,
        device: torch.device | str = "cpu",
        staleness: int = 0,
        observations: np.ndarray | None = None,
    ) -> None:
        """`observations` are what the envs show, if they were reset already."""
        self.envs = envs
        self.env_steps = 0
        self.num_rollouts = 0
        self.episodes = EpisodeStatistics(envs.num_envs)
        self.seconds = {"act": 0.0, "env": 0.0}
        self._device = torch.device(device)
        self._max_horizon = max_horizon
        self._buffer = RolloutBuffer(max_horizon, envs.reset() if observations is None else observations, self._device)
        self._delay = RolloutDelay(staleness) if staleness else None
        self._acting: Learner | None = None
        self._actor: Actor | None = None
        self._compiled: CompiledRollouts | None = None

    def collect(self, learner: Learner, horizon: int, total_env_steps: int) -> Rollout:
        """At most `horizon` steps of every env; fewer where the run's total is reached before.

        With a staleness of s it returns what it collected s calls ago, and the first call collects s + 1 times.
        """
        left = most_rows(total_env_steps - self.env_steps, place().count * self.envs.num_envs)
        horizon = min(horizon, max(1, left))
        if horizon > self._max_horizon:
            raise ConfigError(f"a horizon of {horizon} was planned, and there is room for {self._max_horizon}")
        rollout = self._gather(learner, horizon, total_env_steps)
        if self._delay is None:
            return rollout
        self._delay.push(rollout)
        while not self._delay.is_full and self.env_steps < total_env_steps:
            self._delay.push(self._gather(learner, horizon, total_env_steps))
        return self._delay.pop()

    def _gather(self, learner: Learner, horizon: int, total_env_steps: int) -> Rollout:
        started, in_envs = time.perf_counter(), 0.0
        buffer, steps_before, own_steps = self._buffer, self.env_steps, 0
        num_processes = place().count
        # Where the total may be reached, processes count together at every step; else each guesses what others do.
        may_end = steps_before + horizon * num_processes * self.envs.num_envs >= total_env_steps
        buffer.start()
        actor = self._actor_of(learner)
        if actor is not None:
            actor.start(horizon)
        if self._compiled is not None:
            self._play(self._compiled, horizon, total_env_steps)
            horizon = 0
        for step in range(horizon):
            if step and self.env_steps >= total_env_steps:
                break
            progress = self.env_steps / total_env_steps
            if actor is not None:
                actions = actor.act(step, buffer.observation_array, progress)
            else:
                chosen, recorded = learner.act(buffer.observations, progress)
                buffer.record(recorded)
                actions = chosen.cpu().numpy()
            before = time.perf_counter()
            result = self.envs.step(actions)
            in_envs += time.perf_counter() - before
            buffer.add(actions, result)
            self.episodes.add(result)
            own_steps += int(np.count_nonzero(result.valid))
            self.env_steps = steps_before + (total(own_steps) if may_end else num_processes * own_steps)
        if not is_alone():
            self.env_steps = steps_before + total(own_steps)
            self.episodes.tell()
        self.num_rollouts += 1
        if actor is not None:
            actor.finish(buffer.states)
        rollout = buffer.rollout(None if actor is None else actor.recorded)
        self.seconds["env"] += in_envs
        self.seconds["act"] += time.perf_counter() - started - in_envs
        return rollout

    def _play(self, compiled: "CompiledRollouts", horizon: int, total_env_steps: int) -> None:
        """All steps in one call; every row is a transition, so it is known beforehand how many there will be."""
        num_envs = self.envs.num_envs
        steps = max(1, min(horizon, -(-(total_env_steps - self.env_steps) // num_envs)))
        compiled.play(steps, (self.env_steps + num_envs * np.arange(steps)) / total_env_steps)
        self.env_steps += steps * num_envs

    def _actor_of(self, learner: Learner) -> Actor | None:
        """The learner's own, made once; none where observations are not in this process's memory."""
        if learner is not self._acting:
            self._acting = learner
            self._actor = None
            self._compiled = None
            if self._buffer.is_on_host and isinstance(learner, HasActor):
                self._actor = learner.actor(self._max_horizon, self.envs.num_envs)
            # In one call nobody notes at which step an episode ended, by which processes put theirs in order.
            if self._actor is not None and getattr(self.envs, "is_compiled", False) and is_alone():
                from swell.collect.compiled_rollouts import CompiledRollouts

                compiled: Any = self.envs
                actor: Any = self._actor
                self._compiled = CompiledRollouts(actor, compiled, self._buffer, self.episodes, self._max_horizon)
        return self._actor

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "num_rollouts": self.num_rollouts,
            "seconds": dict(self.seconds),
            "observations": self._buffer.observations.clone(),
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
        if state["envs"] is None:  # of another number of processes
            restarted = self.envs.restart(resume_count)
        else:
            restarted = self.envs.load_state_dict(state["envs"], resume_count)
        if restarted is None:
            self._buffer.start_from(state["observations"])
            return True
        self._buffer.start_from(torch.from_numpy(restarted))
        self.episodes.abandon()
        return False


class Played(NamedTuple):
    """Episodes that were played."""

    returns: list[float]
    """Unclipped, in the order in which the episodes ended."""
    cut: int
    """How many of them did not end by themselves."""


def play_episodes(
    policy: Callable[[Tensor], Tensor],
    envs: VectorEnv,
    episodes: int,
    device: torch.device,
    longest: float = math.inf,
    told: Callable[[int, int], None] | None = None,
) -> Played:
    """Plays `episodes` whole episodes.

    Every env plays its own share: taking the first to finish instead would favour short episodes. One that has not
    ended after `longest` steps is cut off there and counted as it stands; its env cannot be started anew alone, so it
    plays no more. `told` hears after each step how many episodes have ended and how many steps there were; it may raise
    to put an end to them.
    """
    share = np.full(envs.num_envs, episodes // envs.num_envs)
    share[: episodes % envs.num_envs] += 1
    returns: list[float] = []
    running, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, dtype=np.int64)
    steps = num_cut = 0
    observations = envs.reset()
    while (share > 0).any():
        actions = policy(torch.from_numpy(observations).to(device))
        result = envs.step(actions.cpu().numpy())
        observations, over = result.observations, result.episode_over
        running += result.scores
        lengths += result.valid
        cut = (lengths == longest) & ~over & (share > 0)
        counted = (over & (share > 0)) | cut
        returns.extend(running[counted].tolist())
        share[counted] -= 1
        share[cut] = 0
        running[over], lengths[over] = 0.0, 0
        steps, num_cut = steps + 1, num_cut + int(cut.sum())
        if told is not None:
            told(len(returns), steps)
    return Played(returns, num_cut)
