"""Atari envs in pieces: the same games as in one vector env, and how far they are is told."""

import numpy as np
import pytest

from swell.envs.resume_check import same_state
from swell.envs.starting import listening

pytest.importorskip("ale_py")
import swell.envs.ale_pieces as ale_pieces


def play(envs, steps: int, seed: int = 0) -> list:
    actions = np.random.default_rng(seed).integers(0, envs.action_space.n, (steps, envs.num_envs))
    return [list(envs.step(row)) for row in actions]


def test_pieces_play_the_games_of_one_vector_env(make, monkeypatch):
    """With ends at different times, sticky actions and new seeds for single envs."""
    monkeypatch.setattr("swell.envs.atari.RESEED_EVERY", 2)
    options = {"num_envs": 3, "sticky_actions": 0.25, "episodic_life": True, "max_episode_steps": 60}
    whole = make("pong", **options)
    monkeypatch.setattr(ale_pieces, "PIECE", 2)
    pieces = make("pong", **options)
    assert np.array_equal(whole.reset(), pieces.reset())
    assert same_state(play(whole, 150), play(pieces, 150))
    assert np.array_equal(whole.reset(), pieces.reset())


def test_only_some_envs_of_a_piece_may_be_restarted(make, monkeypatch):
    monkeypatch.setattr(ale_pieces, "PIECE", 2)
    envs = make("breakout", num_envs=5)
    before = envs.reset()
    played = play(envs, 8)[-1][0]
    chosen = np.array([False, False, False, True, True])
    after = envs._start(chosen, envs._seeds(chosen))
    assert np.array_equal(after[chosen], before[chosen])
    assert np.array_equal(after[~chosen], played[~chosen])


def test_resumed_pieces_go_on_exactly_like_the_originals(make, monkeypatch):
    monkeypatch.setattr(ale_pieces, "PIECE", 2)
    original, restored = (make("breakout", num_envs=3, max_episode_steps=30) for _ in range(2))
    original.reset()
    play(original, 70)
    assert restored.load_state_dict(original.state_dict(), resume_count=1) is None
    assert same_state(play(original, 40, seed=1), play(restored, 40, seed=1))


def test_who_listens_hears_how_many_envs_have_started(make, monkeypatch):
    monkeypatch.setattr(ale_pieces, "PIECE", 2)
    heard = []
    with listening(lambda *progress: heard.append(progress)):
        make("pong", num_envs=5)
    make("pong", num_envs=3)  # nobody listens any more
    assert heard == [(0, 5), (2, 5), (4, 5), (5, 5)]


def test_a_few_envs_start_without_a_word(make):
    heard = []
    with listening(lambda *progress: heard.append(progress)):
        make("pong", num_envs=2)
    assert heard == []
