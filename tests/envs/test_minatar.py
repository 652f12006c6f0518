"""MinAtar: the same games as its own package, faster."""

import numpy as np
import pytest

from swell.envs.resume_check import same_state

pytest.importorskip("minatar")

GAMES = ["asterix", "breakout", "freeway", "seaquest", "space_invaders"]


@pytest.mark.parametrize("game", GAMES)
def test_a_game_is_the_one_that_minatar_plays(game, make, actions_for):
    from minatar import Environment

    from swell.envs.contract import env_seeds

    envs = make(f"minatar/{game}", num_envs=2, seed=7)
    observations = envs.reset()
    reference = Environment(game)
    reference.seed(env_seeds(7, 0, 2)[1])
    reference.reset()
    action_set = reference.minimal_action_set()
    for actions in actions_for(envs, 300):
        assert np.array_equal(observations[1], reference.state().transpose(2, 0, 1))
        step = envs.step(actions)
        reward, over = reference.act(action_set[actions[1]])
        assert (step.scores[1], step.terminated[1]) == (reward, over)
        assert np.array_equal(step.final_observations[1], reference.state().transpose(2, 0, 1))
        if over:
            reference.reset()
        observations = step.observations


def test_observations_are_channel_first_booleans(make):
    envs = make("minatar/seaquest", num_envs=3)
    observations = envs.reset()
    assert observations.shape == (3, *envs.observation_space.shape) == (3, 10, 10, 10)
    assert observations.dtype == envs.observation_space.dtype == np.bool_
    assert observations.flags.c_contiguous


def test_version_0_has_all_six_actions(make):
    assert make("MinAtar/Breakout-v0").action_space.n == 6
    assert make("MinAtar/Breakout-v1").action_space.n == 3


def test_the_time_limit_truncates_and_keeps_the_last_observation(make):
    envs = make("minatar/freeway", max_episode_steps=5)
    envs.reset()
    steps = [envs.step(np.array([1, 1])) for _ in range(6)]
    assert [step.truncated.all() for step in steps] == [False] * 4 + [True, False]
    assert steps[4].episode_over.all()
    assert not steps[4].terminated.any()
    assert not np.array_equal(steps[4].final_observations, steps[4].observations)


def test_sticky_actions_are_minatars_own_unless_set(make):
    assert make("minatar/breakout")._games[0].sticky_action_prob == 0.1
    assert make("minatar/breakout", sticky_actions=0.25)._games[0].sticky_action_prob == 0.25


def test_steps_do_not_write_into_earlier_observations(make, actions_for):
    envs = make("minatar/breakout", num_envs=4)
    kept = [envs.reset()] + [envs.step(row).observations for row in actions_for(envs, 30)]
    copies = [observations.copy() for observations in kept]
    for row in actions_for(envs, 30):
        envs.step(row)
    assert all(map(np.array_equal, kept, copies))


@pytest.mark.parametrize("game", GAMES)
def test_restored_games_go_on_exactly_like_the_originals(game, make, actions_for):
    original = make(f"minatar/{game}", num_envs=4, seed=1, max_episode_steps=150)
    original.reset()
    actions = actions_for(original, 500)
    for row in actions[:230]:
        original.step(row)
    restored = make(f"minatar/{game}", num_envs=4, seed=1, max_episode_steps=150)
    assert original.resume_tier == "exact"
    assert restored.load_state_dict(original.state_dict(), resume_count=1) is None
    for row in actions[230:]:
        assert same_state(list(original.step(row)), list(restored.step(row)))


@pytest.mark.parametrize("piece", ["random", "last_action", "pos"])
def test_every_saved_piece_is_needed(piece, make, actions_for):
    options = {"num_envs": 8, "seed": 1, "max_episode_steps": 50, "sticky_actions": 0.5}
    original = make("minatar/freeway", **options)
    original.reset()
    actions = actions_for(original, 200)
    for row in actions[:70]:
        original.step(row)
    state = original.state_dict()
    for game in state["games"]:
        game["attributes"].pop(piece, None)
        game["attributes"]["env"]["attributes"].pop(piece, None)
    restored = make("minatar/freeway", **options)
    restored.load_state_dict(state, resume_count=1)
    assert not all(same_state(list(original.step(row)), list(restored.step(row))) for row in actions[70:])


def test_an_image_shows_paddle_and_bricks(make):
    envs = make("minatar/breakout", render_mode="rgb_array")
    envs.reset()
    image = envs.render()
    assert image.shape == (240, 240, 3)
    assert image.dtype == np.uint8
    assert len(np.unique(image.reshape(-1, 3), axis=0)) == 3  # the ball starts behind a brick
    assert make("minatar/breakout").render() is None
