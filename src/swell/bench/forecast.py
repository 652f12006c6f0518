"""How long a benchmark may take and how much disk: a first guess, then by the speeds that runs have shown."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swell.bench.plan import PlannedRun
from swell.bench.status import RunState
from swell.envs.ids import EnvFamily, env_family

# Measured on one core of a busy two-core machine with the default networks; a first guess, no promise.
STEPS_PER_SECOND: dict[EnvFamily, float] = {
    "classic": 12_000,
    "minatar": 6_000,
    "mujoco": 2_500,
    "atari": 300,
    "procgen": 250,
    "other": 4_000,
}
MEGABYTES_PER_RUN: dict[EnvFamily, float] = {
    "classic": 2.5,
    "minatar": 8.0,
    "mujoco": 4.0,
    "atari": 90.0,
    "procgen": 60.0,
    "other": 5.0,
}
"""Three checkpoints and the logs."""
START_SECONDS = 5.0
OVER = ("failed", "stopped")
"""Unfinished runs that nobody goes on with."""


@dataclass(frozen=True)
class Cost:
    """What the runs of a plan may take together."""

    seconds: float
    gigabytes: float
    env_steps: int


def cost_of(runs: Sequence[PlannedRun], jobs: int, speeds: dict[str, float] | None = None) -> Cost:
    """An estimate; `speeds` are steps per second that finished runs of an env have shown."""
    seconds = 0.0
    for run in runs:
        speed = (speeds or {}).get(run.env) or STEPS_PER_SECOND[env_family(run.env)]
        seconds += START_SECONDS + run.config.total_env_steps / speed
    megabytes = sum(MEGABYTES_PER_RUN[env_family(run.env)] for run in runs)
    return Cost(seconds / max(1, jobs), megabytes / 1024, sum(run.config.total_env_steps for run in runs))


def seconds_left(states: Sequence[RunState]) -> float:
    """How long the rest may take at the present number of runs at a time; 0 if nothing is left."""
    speeds = speeds_of(states)
    rest = [seconds_left_of(state, speeds) for state in states if not state.is_finished and state.status not in OVER]
    at_a_time = max(1, sum(state.status in ("running", "in use") for state in states))
    return max([sum(rest) / at_a_time, *rest], default=0.0)


def seconds_left_of(state: RunState, speeds: Mapping[str, float]) -> float:
    """By the speed of the run itself, else of others on its env, else by a first guess."""
    speed = state.steps_per_second or speeds.get(state.run.env) or STEPS_PER_SECOND[env_family(state.run.env)]
    steps = max(0, state.run.config.total_env_steps - state.env_steps)
    return steps / speed + (0.0 if state.env_steps else START_SECONDS)


def speeds_of(states: Sequence[RunState]) -> dict[str, float]:
    """Env steps per second by env, as far as runs have shown them."""
    steps: defaultdict[str, float] = defaultdict(float)
    seconds: defaultdict[str, float] = defaultdict(float)
    for state in states:
        if state.wall_seconds and state.env_steps:
            steps[state.run.env] += state.env_steps
            seconds[state.run.env] += state.wall_seconds
    return {env: steps[env] / seconds[env] for env in steps}


def rough_duration(seconds: float) -> str:
    """`40 s`, `12 min`, `1 h 20 min` or `2 days 3 h`: no finer than an estimate deserves."""
    minutes = round(seconds / 60)
    if minutes < 1 or seconds < 60:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} day{'s' if hours >= 48 else ''} {hours % 24} h"
