"""Fixtures that make envs and drive them."""

import gymnasium
import numpy as np
import pytest
from registered_envs import register_all

from swell.envs import VectorEnv, make_envs

if "SwellTest/Counting-v0" not in gymnasium.registry:
    register_all()


@pytest.fixture
def make(request):
    """Makes envs that are closed after the test."""
    made: list[VectorEnv] = []

    def make_closed_later(env: str, num_envs: int = 2, seed: int = 0, **settings) -> VectorEnv:
        made.append(make_envs(env, num_envs=num_envs, seed=seed, **settings))
        return made[-1]

    yield make_closed_later
    for envs in made:
        envs.close()


@pytest.fixture
def actions_for():
    """Random actions [steps, num_envs], the same for the same seed."""

    def sample(envs: VectorEnv, steps: int, seed: int = 0) -> np.ndarray:
        envs.action_space.seed(seed)
        return np.array([[envs.action_space.sample() for _ in range(envs.num_envs)] for _ in range(steps)])

    return sample
