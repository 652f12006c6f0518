"""Sides: anything that can train for a few seconds when it is asked to, and says how far it got."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from benchmarks import plain_pqn
from swell.config.run_config import RunConfig
from swell.loop import train
from swell.runs.build import build

ONE_ITERATION = 1e-9
"""The length of a block that ends after its first iteration."""
WARM_UP_SECONDS = 1.0
TRIAL_SECONDS = 0.5
CORES = torch.get_num_threads()
"""What torch takes by default: one thread a core."""


@dataclass(frozen=True)
class Block:
    """What a side did in its turn."""

    work: float
    """Env steps, or floating-point operations."""
    seconds: float
    details: Mapping[str, float] = field(default_factory=dict[str, float])
    """Whatever else it counted in this block."""

    @property
    def rate(self) -> float:
        return self.work / self.seconds


class Side(Protocol):
    """One contestant, alone in its process."""

    threads: int
    """How many threads of torch it uses; known after the warm-up."""

    def warm_up(self) -> None:
        """Does all that happens once: imports, allocations, compilation, the choice of threads."""
        ...

    def block(self, seconds: float) -> Block:
        """Goes on for about so long: the last iteration is finished and counted."""
        ...


class IteratedSide:
    """A side that goes on by whole iterations."""

    threads = 1

    def prepare(self) -> None:
        """What has to be done before an iteration, and is no part of it."""

    def iterate(self) -> float:
        """One iteration; returns the work done."""
        raise NotImplementedError

    def counters(self) -> dict[str, float]:
        """Growing numbers whose increase over a block is told with it."""
        return {}

    def warm_up(self) -> None:
        self.block(ONE_ITERATION)  # may compile for longer than a whole warm-up
        self.block(WARM_UP_SECONDS)

    def block(self, seconds: float) -> Block:
        work, spent, details = 0.0, 0.0, Counter[str]()
        while spent < seconds:
            self.prepare()
            before, started = self.counters(), time.perf_counter()
            work += self.iterate()
            spent += time.perf_counter() - started
            for name, value in self.counters().items():
                details[name] += value - before[name]  # pyright: ignore[reportArgumentType]  # floats add up as well
        return Block(work, spent, dict(details))


class Ours(IteratedSide):
    """The loop of a Swell run, without the run directory and the display that `swell train` puts around it."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._begin()

    def _begin(self) -> None:
        self._parts = parts = build(self._config)
        self.threads = parts.threads
        self._loop = train(
            parts.collector, parts.learner, parts.measurement, parts.scaler, self._config.total_env_steps
        )

    def prepare(self) -> None:
        """Starts anew at the end of a run: its length is part of the settings, for the schedules that hang on it."""
        if self._parts.collector.env_steps >= self._config.total_env_steps:
            self._parts.collector.envs.close()
            self._begin()
            next(self._loop)

    def iterate(self) -> float:
        before = self._parts.collector.env_steps
        next(self._loop)
        return self._parts.collector.env_steps - before

    def counters(self) -> dict[str, float]:
        parts = self._parts
        measured = parts.measurement.seconds
        return {**parts.collector.seconds, "measure": measured, "iterations": parts.collector.num_rollouts}


class PlainPQN(IteratedSide):
    """The plain loop, with the number of threads that suits it best."""

    def __init__(self, workload: str, threads_to_try: Sequence[int]) -> None:
        self._loop = plain_pqn.train(plain_pqn.SETTINGS[workload])
        self._threads_to_try = threads_to_try
        self._env_steps = 0

    def warm_up(self) -> None:
        self.threads = fastest_threads(self.block, self._threads_to_try)

    def iterate(self) -> float:
        before = self._env_steps
        self._env_steps = next(self._loop)
        return self._env_steps - before


def fastest_threads(block: Callable[[float], Block], candidates: Sequence[int]) -> int:
    """Tries each number of torch threads in turn, twice, and leaves the fastest set.

    Small networks lose more by handing work between threads than they gain, and what is small depends on the side.
    """
    block(TRIAL_SECONDS)
    if len(candidates) > 1:
        best = dict.fromkeys(candidates, 0.0)
        for threads in (*candidates, *candidates):
            torch.set_num_threads(threads)
            best[threads] = max(best[threads], block(TRIAL_SECONDS).rate)
        candidates = [max(best, key=lambda threads: best[threads])]
    torch.set_num_threads(candidates[0])
    return candidates[0]
