"""A benchmark in words: how far it is, what has just happened, and how long the rest may take. Strings and numbers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from swell.bench.plan import START_SECONDS, STEPS_PER_SECOND
from swell.bench.status import RunState, Status
from swell.display.words import count, decimal
from swell.envs.ids import env_family


def headline(states: Sequence[RunState]) -> str:
    """Such as "42 of 140 finished, 2 running, 1 failed, about 1 h 20 min left"."""
    told = [f"{sum(state.is_finished for state in states)} of {len(states)} finished"]
    for status in ("running", "in use", "failed"):
        number = sum(state.status == status for state in states)
        told += [f"{number} {status}"] if number else []
    left = seconds_left(states)
    return ", ".join([*told, f"about {rough_duration(left)} left"] if left else told)


def event_line(before: Status | None, state: RunState) -> str:
    """What to say of a run whose status was `before`; nothing where that is no news."""
    if before == state.status or (before is None and state.status != "running"):
        return ""
    name = state.run.name
    match state.status:
        case "running" if state.env_steps:
            return f"continues {name} at {count(state.env_steps)} steps"
        case "running":
            return f"starts {name}"
        case "done":
            return f"finished {name}" if state.score is None else f"finished {name}, score {decimal(state.score)}"
        case "diverged":
            return f"diverged {name} at {count(state.env_steps)} steps"
        case "failed":
            return f"failed {name}: {state.reason}"
        case "in use":
            return f"in use by another process: {name}"
        case _:
            return ""


def seconds_left(states: Sequence[RunState]) -> float:
    """How long the rest may take at the present number of runs at a time; 0 if nothing is left."""
    speeds = speeds_of(states)
    rest = [seconds_left_of(state, speeds) for state in states if not state.is_finished and state.status != "failed"]
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
