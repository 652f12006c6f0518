"""Whichever way envs reset themselves, the learner sees the same transitions."""

import numpy as np
import pytest
from env_comparisons import transitions

from swell.envs import EnvSettings
from swell.envs.gymnasium_envs import EntryPointEnvs, LoopedEnvs
from swell.envs.workers import WorkerEnvs

NUM_ENVS = 3
BACKENDS = {
    "looped": (LoopedEnvs, "SwellTest/Counting-v0"),
    "workers": (WorkerEnvs, "SwellTest/Counting-v0"),
    "next step": (EntryPointEnvs, "SwellTest/CountingNextStep-v0"),
    "same step": (EntryPointEnvs, "SwellTest/CountingSameStep-v0"),
}


def played(backend: str, count: int, **settings) -> list[list[tuple]]:
    kind, env_id = BACKENDS[backend]
    return transitions(kind(EnvSettings(env_id, NUM_ENVS, seed=0, **settings)), count)


@pytest.mark.parametrize("backend", ["workers", "next step", "same step"])
@pytest.mark.parametrize("limit", [None, 4])
def test_every_kind_of_autoreset_gives_the_same_transitions(backend, limit):
    expected = played("looped", 20, max_episode_steps=limit)
    assert played(backend, 20, max_episode_steps=limit) == expected


def test_the_transitions_are_those_of_the_env():
    """The first two episodes by hand: they end after 3 and, cut by the time limit, after 4 of 5 steps."""
    first_episode = [
        ((0, 0), 0, 1.0, False, False, False, (0, 1)),
        ((0, 1), 2, 4.0, False, False, False, (0, 2)),
        ((0, 2), 4, 7.0, True, False, True, (0, 3)),
    ]
    second_episode = [
        ((1, 0), 1, 2.0, False, False, False, (1, 1)),
        ((1, 1), 3, 5.0, False, False, False, (1, 2)),
        ((1, 2), 5, 8.0, False, False, False, (1, 3)),
        ((1, 3), 7, 11.0, False, True, True, (1, 4)),
    ]
    assert played("looped", 7, max_episode_steps=4) == [first_episode + second_episode] * NUM_ENVS


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_end_at_the_time_limit_is_a_termination(backend):
    for row in played(backend, 3, max_episode_steps=3):
        assert [(terminated, truncated) for _, _, _, terminated, truncated, _, _ in row] == [
            (False, False),
            (False, False),
            (True, False),
        ]


def test_a_reset_row_is_not_valid_and_has_no_reward(make):
    envs = make("SwellTest/CountingNextStep-v0")
    envs.reset()
    steps = [envs.step(np.array([5, 5])) for _ in range(5)]
    assert [step.valid.tolist() for step in steps] == [[True] * 2] * 3 + [[False] * 2] + [[True] * 2]
    assert steps[3].rewards.tolist() == [0, 0]
    assert steps[3].scores.tolist() == [0, 0]
    assert not steps[3].episode_over.any()


def test_cartpole_and_its_vectorised_version_play_the_same_episode():
    single = LoopedEnvs(EnvSettings("CartPole-v1", 1, seed=0))
    vectorised = EntryPointEnvs(EnvSettings("CartPole-v1", 1, seed=0))
    single.reset()
    vectorised.reset()
    vectorised._envs.state[:, 0] = single._envs[0].unwrapped.state
    while True:
        ours, theirs = single.step(np.array([1])), vectorised.step(np.array([1]))
        np.testing.assert_allclose(ours.final_observations, theirs.observations, rtol=1e-6)
        assert ours.terminated == theirs.terminated
        if ours.terminated:
            break
