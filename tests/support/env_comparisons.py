"""What several tests of envs compare: saved states, envs that go on alike, transitions, and what a failure says."""

import json
from typing import Any

import numpy as np
import pytest

from swell.envs import VectorEnv
from swell.envs.resume_check import same_state
from swell.errors import EnvironmentFailedError


def through_json(state: Any) -> Any:
    """What a checkpoint does to a state: all but the arrays is written as JSON."""
    if isinstance(state, np.ndarray):
        assert state.dtype.kind in "biuf"
        return state.copy()
    if isinstance(state, dict):
        assert all(type(key) is str for key in state)
        return {key: through_json(value) for key, value in state.items()}
    if isinstance(state, list):
        return [through_json(value) for value in state]
    return json.loads(json.dumps(state, allow_nan=False))


def goes_on_alike(original, restored, actions) -> bool:
    return all(same_state(list(original.step(row)), list(restored.step(row))) for row in actions)


def transitions(envs: VectorEnv, count: int) -> list[list[tuple]]:
    """The first valid transitions of each CountingEnv, under a policy that only looks at the observation."""
    rows: list[list[tuple]] = [[] for _ in range(envs.num_envs)]
    observations = envs.reset()
    while min(map(len, rows)) < count:
        actions = (observations[:, 1] + 2 * observations[:, 2]).astype(np.int64) % 10
        step = envs.step(actions)
        next_observations = step.observations if step.final_observations is None else step.final_observations
        for index in np.flatnonzero(step.valid):
            # without the seed in the first place, which a vectorised env derives in its own way
            rows[index].append(
                (
                    tuple(observations[index, 1:]),
                    int(actions[index]),
                    float(step.rewards[index]),
                    bool(step.terminated[index]),
                    bool(step.truncated[index]),
                    bool(step.episode_over[index]),
                    tuple(next_observations[index, 1:]),
                )
            )
        observations = step.observations
    envs.close()
    return [row[:count] for row in rows]


def play(envs, steps: int = 5) -> None:
    envs.reset()
    for _ in range(steps):
        envs.step(np.zeros(envs.num_envs, dtype=np.int64))


def failure_of(envs) -> str:
    with pytest.raises(EnvironmentFailedError) as caught:
        play(envs)
    return str(caught.value)
