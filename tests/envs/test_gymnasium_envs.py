"""Any Gymnasium env: its spaces, seeds, rewards and limits, and the same transitions whichever way it resets itself."""

import numpy as np
import pytest
from env_comparisons import transitions
from gymnasium.spaces import Box, Discrete

from swell.envs import EnvBatch
from swell.envs.gymnasium_envs import EntryPointEnvs, LoopedEnvs
from swell.envs.workers import WorkerEnvs

NUM_ENVS = 3
BACKENDS = {
    "looped": (LoopedEnvs, "SwellTest/Counting-v0"),
    "workers": (WorkerEnvs, "SwellTest/Counting-v0"),
    "next step": (EntryPointEnvs, "SwellTest/CountingNextStep-v0"),
    "same step": (EntryPointEnvs, "SwellTest/CountingSameStep-v0"),
}


def test_an_env_with_a_vectorised_version_uses_it(make):
    assert isinstance(make("CartPole-v1"), EntryPointEnvs)
    assert isinstance(make("Acrobot-v1"), LoopedEnvs)
    assert isinstance(make("CartPole-v1", async_envs=True), WorkerEnvs)


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Acrobot-v1", "FrozenLake-v1", "Blackjack-v1", "SwellTest/Counting-v0"]
)
def test_observations_are_float32_arrays_of_the_space(env_id, make, actions_for):
    envs = make(env_id, num_envs=3)
    observations = [envs.reset()] + [envs.step(actions).observations for actions in actions_for(envs, 5)]
    assert isinstance(envs.observation_space, Box)
    for rows in observations:
        assert rows.dtype == envs.observation_space.dtype == np.float32
        assert all(envs.observation_space.contains(row) for row in rows)


def test_a_discrete_observation_becomes_one_hot(make):
    assert make("FrozenLake-v1").reset().tolist() == [[1.0] + [0.0] * 15] * 2


def test_a_dict_observation_becomes_one_vector(make):
    envs = make("SwellTest/NestedSpace-v0")
    assert envs.reset().tolist() == [[1, 0, 0, 0.5, 0.5]] * 2
    assert envs.step(np.array([0, 1])).observations.tolist() == [[0, 1, 0, 0.5, 0.5]] * 2


def test_actions_always_count_from_zero(make):
    envs = make("SwellTest/NestedSpace-v0")
    envs.reset()
    assert envs.action_space == Discrete(2)
    assert envs.step(np.array([0, 1])).rewards.tolist() == [6, 7]  # the env's actions 5 and 6, plus one for the step


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0"])
def test_every_env_starts_differently_and_every_run_alike(env_id, make):
    observations = make(env_id, num_envs=8, seed=3).reset()
    assert len(np.unique(observations, axis=0)) == 8
    assert np.array_equal(observations, make(env_id, num_envs=8, seed=3).reset())
    assert not np.array_equal(observations, make(env_id, num_envs=8, seed=4).reset())


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0"])
def test_max_episode_steps_overrides_the_limit_of_the_env(env_id, make):
    envs = make(env_id, max_episode_steps=3)
    envs.reset()
    steps = [envs.step(np.array([0, 1])) for _ in range(3)]
    assert [step.truncated.tolist() for step in steps] == [[False] * 2] * 2 + [[True] * 2]
    assert not steps[-1].terminated.any()
    assert steps[-1].episode_over.all()


def test_a_time_limit_keeps_the_last_observation(make):
    envs = make("SwellTest/Counting-v0", max_episode_steps=2)
    envs.reset()
    envs.step(np.zeros(2, dtype=np.int64))
    step = envs.step(np.zeros(2, dtype=np.int64))
    assert step.truncated.all()
    assert step.final_observations[:, 1:].tolist() == [[0, 2]] * 2
    assert step.observations[:, 1:].tolist() == [[1, 0]] * 2


@pytest.mark.parametrize("env_id", ["SwellTest/Counting-v0", "SwellTest/CountingNextStep-v0"])
def test_clipping_changes_rewards_but_not_scores(env_id, make):
    for clip_rewards, rewards in ((True, [1, 1]), (False, [4, 9])):
        envs = make(env_id, clip_rewards=clip_rewards)
        envs.reset()
        step = envs.step(np.array([3, 8]))
        assert step.rewards.tolist() == rewards
        assert step.scores.tolist() == [4, 9]
        assert step.rewards.dtype == np.float32
        assert step.scores.dtype == np.float64


def test_only_envs_asked_to_render_make_an_image(make):
    pytest.importorskip("pygame")
    for env_id in ("CartPole-v1", "MountainCar-v0"):
        envs = make(env_id, render_mode="rgb_array")
        envs.reset()
        assert envs.render().shape == (400, 600, 3)
    assert make("MountainCar-v0").render() is None


def played(backend: str, count: int, **settings) -> list[list[tuple]]:
    kind, env_id = BACKENDS[backend]
    return transitions(kind(EnvBatch(env_id, num_envs=NUM_ENVS, seed=0, **settings)), count)


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
    single = LoopedEnvs(EnvBatch("CartPole-v1", num_envs=1, seed=0))
    vectorised = EntryPointEnvs(EnvBatch("CartPole-v1", num_envs=1, seed=0))
    single.reset()
    vectorised.reset()
    vectorised._envs.state[:, 0] = single._envs[0].unwrapped.state
    while True:
        ours, theirs = single.step(np.array([1])), vectorised.step(np.array([1]))
        np.testing.assert_allclose(ours.final_observations, theirs.observations, rtol=1e-6)
        assert ours.terminated == theirs.terminated
        if ours.terminated:
            break
