"""Atari: lives, scores, limits, and games that are played again to resume."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swell.envs.resume_check import same_state

pytest.importorskip("ale_py")
import swell.envs.atari as atari


def play(envs, steps: int, seed: int = 0) -> list:
    actions = np.random.default_rng(seed).integers(0, envs.action_space.n, (steps, envs.num_envs))
    return [envs.step(row) for row in actions]


def test_observations_are_four_stacked_grey_frames(make):
    envs = make("breakout")
    observations = envs.reset()
    assert observations.shape == (2, 4, 84, 84)
    assert observations.dtype == np.uint8
    assert envs.action_space.n == 4


def test_a_lost_life_terminates_for_the_learner_but_the_game_goes_on(make):
    envs = make("breakout", episodic_life=True)
    envs.reset()
    steps = play(envs, 300)
    ends = [step.terminated[0] for step in steps]
    games = [step.episode_over[0] for step in steps]
    assert 4 * sum(games) <= sum(ends) - sum(games) <= 4 * (sum(games) + 1)  # five lives: four lost without an end
    lost = next(step for step in steps if step.terminated[0] and not step.episode_over[0])
    assert np.array_equal(lost.final_observations[0], lost.observations[0])
    assert (lost.observations[0, 0] > 0).any()  # the frames before are still there: no reset happened


def test_without_episodic_life_only_the_end_of_the_game_terminates(make):
    envs = make("breakout")
    envs.reset()
    steps = play(envs, 300)
    assert sum(step.terminated.sum() for step in steps) > 0
    assert all(np.array_equal(step.terminated, step.episode_over) for step in steps)


def test_episodic_life_does_not_change_the_game(make):
    plain, episodic = make("breakout"), make("breakout", episodic_life=True)
    assert np.array_equal(plain.reset(), episodic.reset())
    for first, second in zip(play(plain, 250), play(episodic, 250), strict=True):
        assert np.array_equal(first.observations, second.observations)
        assert np.array_equal(first.scores, second.scores)
        assert np.array_equal(first.episode_over, second.episode_over)


def test_scores_are_not_clipped(make):
    envs = make("space_invaders", clip_rewards=True)
    envs.reset()
    steps = play(envs, 150)
    scores = np.stack([step.scores for step in steps])
    assert scores.max() >= 5
    assert np.array_equal(np.stack([step.rewards for step in steps]), np.sign(scores))


def test_the_time_limit_truncates_after_that_many_steps(make):
    envs = make("pong", max_episode_steps=6)
    envs.reset()
    steps = play(envs, 13)
    assert [step.truncated.tolist() for step in steps] == [[(time + 1) % 6 == 0] * 2 for time in range(13)]
    assert steps[5].episode_over.all()
    assert np.array_equal(steps[5].final_observations[:, 2], steps[4].observations[:, 3])
    assert not (steps[5].observations[:, :3] > 0).any()  # a new stack with one frame in it


def test_every_env_plays_its_own_game_and_every_run_alike(make):
    """With the same actions everywhere, games differ only by their seeds."""
    runs = []
    for seed in (0, 0, 1):
        envs = make("breakout", seed=seed)
        envs.reset()
        runs.append(np.stack([envs.step(np.full(2, time % 4)).observations for time in range(40)]))
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert not np.array_equal(runs[0][:, 0], runs[0][:, 1])


@pytest.mark.parametrize(("game", "episodic_life"), [("pong", False), ("breakout", True), ("qbert", True)])
def test_resumed_games_go_on_exactly_like_the_originals(game, episodic_life, make, monkeypatch):
    monkeypatch.setattr(atari, "RESEED_EVERY", 3)
    options = {"num_envs": 2, "episodic_life": episodic_life, "max_episode_steps": 30, "render_mode": "rgb_array"}
    original = make(game, **options)
    original.reset()
    play(original, 135)
    restored = make(game, **options)
    assert original.resume_tier == "replay"
    assert restored.load_state_dict(original.state_dict(), resume_count=1) is None
    for first, second in zip(play(original, 70, seed=1), play(restored, 70, seed=1), strict=True):
        assert same_state(list(first), list(second))
    assert np.array_equal(original.render(), restored.render())


@pytest.mark.parametrize("piece", ["actions", "games"])
def test_games_that_come_out_differently_are_lost_and_restarted(piece, make):
    original = make("breakout")
    first = original.reset()
    play(original, 60)
    state = original.state_dict()
    state[piece] = (state[piece] + 1) % 3
    with pytest.warns(UserWarning, match="ALE/Breakout-v5: the unfinished games came out differently"):
        observations = make("breakout").load_state_dict(state, resume_count=1)
    assert observations.shape == first.shape
    assert not np.array_equal(observations, first)


def test_games_too_long_to_replay_are_lost(make, monkeypatch):
    original = make("pong", num_envs=1)
    original.reset()
    play(original, 10)
    monkeypatch.setattr(atari, "REPLAY_LIMIT", 9)
    with pytest.warns(UserWarning, match="too long to be played again"):
        assert make("pong", num_envs=1).load_state_dict(original.state_dict(), resume_count=1) is not None


@pytest.mark.parametrize(("game", "sticky_actions"), [("breakout", 0.25), ("time_pilot", 0.0)])
def test_games_that_depend_on_the_games_before_only_continue(game, sticky_actions, make):
    envs = make(game, num_envs=1, sticky_actions=sticky_actions)
    envs.reset()
    assert envs.resume_tier == "continuing"
    assert envs.state_dict() == {}


def test_a_continuing_run_restarts_with_other_seeds(make):
    envs = make("breakout", sticky_actions=0.25)
    first = envs.reset()
    assert not np.array_equal(envs.load_state_dict({}, resume_count=1), first)
    assert not np.array_equal(envs.load_state_dict({}, resume_count=2), first)


def test_an_image_is_in_colour(make):
    envs = make("breakout", render_mode="rgb_array")
    envs.reset()
    play(envs, 20)
    image = envs.render()
    assert image.shape == (210, 160, 3)
    assert not np.array_equal(image[:, :, 0], image[:, :, 2])
    assert make("breakout").render() is None


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 2)), min_size=1, max_size=8))
def test_the_log_holds_the_actions_of_the_unfinished_games(plays):
    """Each play is a number of steps, after which one of three envs starts a new game."""
    log, starts, rng = atari.ActionLog(3), np.zeros(3, dtype=np.int64), np.random.default_rng(0)
    history: list[np.ndarray] = []
    for steps, ended in plays:
        for _ in range(steps):
            history.append(rng.integers(0, 18, 3))
            log.append(history[-1])
        log.forget(np.arange(3) == ended)
        starts[ended] = len(history)
    assert log.lengths.tolist() == (len(history) - starts).tolist()
    assert log.rows().tolist() == [row.tolist() for row in history[starts.min() :]]
