"""Saved envs go on exactly where they were, and the check that promises it can say no."""

import numpy as np
import pytest
from env_comparisons import goes_on_alike, through_json

from swell.envs.resume_check import same_state

EXACT = [
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "MountainCarContinuous-v0",
    "Taxi-v4",
    "FrozenLake-v1",
    "Blackjack-v1",
]


@pytest.mark.parametrize("env_id", EXACT)
def test_restored_envs_go_on_exactly_like_the_originals(env_id, make, actions_for):
    original = make(env_id, num_envs=3, seed=1, max_episode_steps=30)
    original.reset()
    actions = actions_for(original, 200)
    for row in actions[:75]:
        original.step(row)
    restored = make(env_id, num_envs=3, seed=1, max_episode_steps=30)
    assert original.resume_tier == "exact"
    assert restored.load_state_dict(through_json(original.state_dict()), resume_count=1) is None
    assert goes_on_alike(original, restored, actions[75:])


def test_a_pending_reset_is_restored_too(make, actions_for):
    """CartPole's vectorised version resets in the step after an end, so what is saved between the two must know."""
    original, restored = make("CartPole-v1", seed=1), make("CartPole-v1", seed=1)
    original.reset()
    steps = iter(actions_for(original, 200))
    while not original.step(next(steps)).episode_over.any():
        continue
    restored.load_state_dict(through_json(original.state_dict()), resume_count=1)
    assert goes_on_alike(original, restored, [next(steps) for _ in range(3)])


@pytest.mark.parametrize(
    ("env_id", "path"),
    [
        ("CartPole-v1", ("envs", "attributes", "state")),
        ("CartPole-v1", ("envs", "attributes", "steps")),
        ("CartPole-v1", ("envs", "attributes", "_np_random")),
        ("CartPole-v1", ("envs", "attributes", "prev_done")),
        ("MountainCar-v0", ("envs", 0, "env", "attributes", "_elapsed_steps")),
        ("MountainCar-v0", ("envs", 0, "env", "attributes", "env", "attributes", "env", "attributes", "state")),
        ("MountainCar-v0", ("envs", 0, "env", "attributes", "env", "attributes", "env", "attributes", "_np_random")),
    ],
)
def test_every_saved_piece_is_needed(env_id, path, make, actions_for):
    """The negative control: without any one piece, the comparison above must fail."""
    original = make(env_id, seed=1, max_episode_steps=10)
    original.reset()
    actions = actions_for(original, 60)
    steps = iter(actions)
    while not original.step(next(steps)).episode_over.any():
        continue
    if path[-1] != "prev_done":  # this one matters right after an end, the others within an episode
        for _ in range(5):
            original.step(next(steps))
    state = original.state_dict()
    piece = state
    for key in path[:-1]:
        piece = piece[key]
    del piece[path[-1]]
    restored = make(env_id, seed=1, max_episode_steps=10)
    restored.load_state_dict(state, resume_count=1)
    assert not goes_on_alike(original, restored, list(steps))


def test_an_env_with_hidden_state_only_continues(make):
    envs = make("SwellTest/HiddenState-v0")
    first = envs.reset()
    assert envs.resume_tier == "continuing"
    assert envs.state_dict() == {}
    restarted = envs.load_state_dict({}, resume_count=1)
    assert restarted.shape == first.shape
    assert not np.array_equal(restarted, first)  # new seeds: not the first episodes of the run again
    assert not np.array_equal(restarted, envs.load_state_dict({}, resume_count=2))


def test_the_trial_does_not_touch_the_envs_it_is_about(make):
    envs, others = make("MountainCar-v0", seed=5), make("MountainCar-v0", seed=5)
    envs.reset(), others.reset()
    assert envs.resume_tier == "exact"
    assert same_state(list(envs.step(np.zeros(2, int))), list(others.step(np.zeros(2, int))))
