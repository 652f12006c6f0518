"""What we make of EnvPool's answers, on a stand-in for the package; test_envpool_itself.py asks the package."""

import ctypes
import importlib
import sys

import numpy as np
import pytest
from env_comparisons import transitions
from fake_envpool import fake_envpool

import swell.envs.ids as ids
from swell.envs import EnvBatch
from swell.envs.envpool_envs import QT_LIBRARY, load_qt
from swell.envs.gymnasium_envs import LoopedEnvs
from swell.errors import ConfigError, EnvironmentFailedError


@pytest.fixture
def envpool(monkeypatch):
    module = fake_envpool()
    monkeypatch.setitem(sys.modules, "envpool", module)
    monkeypatch.setattr(ids, "find_spec", lambda package: object())
    return module


def play(envs, steps: int, action: int = 5) -> list:
    envs.reset()
    return [envs.step(np.full(envs.num_envs, action)) for _ in range(steps)]


@pytest.mark.parametrize("limit", [None, 4])
def test_the_transitions_are_those_of_the_same_envs_in_a_loop(limit, envpool, make):
    looped = LoopedEnvs(EnvBatch("SwellTest/Counting-v0", num_envs=3, seed=0, max_episode_steps=limit))
    pooled = make("HalfCheetah-v5", num_envs=3, backend="envpool", max_episode_steps=limit)
    assert transitions(pooled, 20) == transitions(looped, 20)


def test_the_row_after_an_end_is_no_transition(envpool, make):
    steps = play(make("HalfCheetah-v5", backend="envpool"), 5)
    assert [step.valid.tolist() for step in steps] == [[True] * 2] * 3 + [[False] * 2] + [[True] * 2]
    assert [step.episode_over.all() for step in steps] == [False, False, True, False, False]
    assert steps[2].observations[:, 1:].tolist() == [[0, 3]] * 2  # the last one of the episode
    assert steps[3].observations[:, 1:].tolist() == [[1, 0]] * 2
    assert steps[3].rewards.tolist() == steps[3].scores.tolist() == [0, 0]
    assert all(step.final_observations is None for step in steps)


def test_a_pending_reset_is_forgotten_at_a_restart(envpool, make):
    envs = make("HalfCheetah-v5", backend="envpool")
    assert play(envs, 3)[-1].episode_over.all()
    envs.load_state_dict({}, resume_count=1)
    assert envs.step(np.zeros(2, dtype=np.int64)).valid.all()


def test_observations_become_float32(envpool, make):
    envs = make("HalfCheetah-v5", backend="envpool")
    assert envs.observation_space.dtype == envs.reset().dtype == np.float32
    assert envs.step(np.zeros(2, dtype=np.int64)).observations.dtype == np.float32


def test_clipping_is_ours_so_scores_stay_whole(envpool, make):
    envs = make("pong", backend="envpool", clip_rewards=True)
    (step,) = play(envs, 1)
    assert step.rewards.tolist() == [1, 1]
    assert step.scores.tolist() == [6, 6]
    assert envpool.pools[-1].options["reward_clip"] is False


def test_a_lost_life_terminates_for_the_learner_but_the_game_goes_on(envpool, make):
    steps = play(make("pong", backend="envpool", episodic_life=True), 9)
    assert [step.terminated.all() for step in steps] == [False, True, False, True, False, True, False, False, True]
    assert [step.episode_over.all() for step in steps] == [False] * 5 + [True] + [False] * 3
    assert [step.valid.all() for step in steps] == [True] * 6 + [False] + [True] * 2
    assert envpool.pools[-1].options["episodic_life"] is False  # EnvPool's own plays no-ops that nobody sees


def test_without_episodic_life_only_the_end_of_the_game_terminates(envpool, make):
    steps = play(make("pong", backend="envpool"), 9)
    assert [step.terminated.all() for step in steps] == [False] * 5 + [True] + [False] * 3


def test_a_game_that_is_over_at_its_time_limit_terminates(envpool, make):
    last = play(make("pong", backend="envpool", max_episode_steps=6), 6)[-1]
    assert last.terminated.all()
    assert not last.truncated.any()
    assert last.episode_over.all()


def test_a_game_cut_by_its_time_limit_is_truncated(envpool, make):
    last = play(make("pong", backend="envpool", max_episode_steps=5), 5)[-1]
    assert last.truncated.all()
    assert not last.terminated.any()


def test_the_settings_reach_the_pool(envpool, make):
    make("pong", backend="envpool", threads=3, noop_max=7, sticky_actions=0.25).reset()
    pool = envpool.pools[-1]
    assert pool.task == "Pong-v5"
    assert pool.limit == 27_000
    assert pool.options["num_threads"] == 3
    assert pool.options["noop_max"] == 7
    assert pool.options["repeat_action_probability"] == 0.25
    assert (pool.options["frame_skip"], pool.options["stack_num"]) == (4, 4)


def test_every_env_has_a_seed_of_its_own_and_every_restart_others(envpool, make):
    envs = make("coinrun", num_envs=4, seed=3)
    envs.reset()
    envs.reset()
    envs.load_state_dict(envs.state_dict(), resume_count=1)
    first, again, resumed = (pool.seeds for pool in envpool.pools)
    assert first == again
    assert len({*first, *resumed}) == 8
    assert all(0 <= seed < 2**31 for seed in first)
    assert [pool.closed for pool in envpool.pools] == [True, True, False]


def test_runs_on_envpool_only_continue(envpool, make):
    envs = make("coinrun")
    envs.reset()
    assert envs.resume_tier == "continuing"
    assert envs.state_dict() == {}


def test_only_envs_asked_to_render_make_an_image(envpool, make):
    for name, shape in (("coinrun", (4, 6, 3)), ("HalfCheetah-v5", None)):
        envs = make(name, backend="envpool", render_mode="rgb_array")
        envs.reset()
        image = envs.render()
        assert (None if image is None else image.shape) == shape
    assert make("coinrun").render() is None


@pytest.mark.parametrize(
    ("env_id", "settings", "message"),
    [
        ("pong", {"noop_max": 0}, "noop_max must be at least 1 with backend envpool, got 0"),
        ("coinrun", {"max_episode_steps": 10}, "max_episode_steps must be None for Procgen/CoinrunHard-v0, got 10"),
        ("breakout", {}, "backend must be gymnasium or auto for ALE/Breakout-v5: envpool does not have it"),
    ],
)
def test_what_envpool_cannot_do_is_refused(env_id, settings, message, envpool, make):
    with pytest.raises(ConfigError) as caught:
        make(env_id, backend="envpool", **settings)
    assert str(caught.value) == message


def test_missing_qt_is_one_line_that_says_what_to_install(envpool, make):
    envpool.missing = ImportError("EnvPool Procgen requires the system Qt 5 runtime on Linux.")
    with pytest.raises(ConfigError) as caught:
        make("coinrun")
    assert "apt install libqt5gui5" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_assets_are_one_line_that_says_what_to_install(envpool, make, monkeypatch):
    def raise_missing_file(name: str):
        raise FileNotFoundError("no such file: myosuite/metadata.json")

    monkeypatch.setattr("swell.envs.envpool_envs.import_module", raise_missing_file)
    with pytest.raises(ConfigError, match=r'cannot import envpool .*: pip install "swell-rl\[envpool\]"'):
        make("HalfCheetah-v5", backend="envpool")


def test_a_fault_stops_the_run_and_says_where(envpool, make):
    envs = make("HalfCheetah-v5", backend="envpool")
    play(envs, 2)
    envpool.pools[-1].fault = float("nan")
    with pytest.raises(EnvironmentFailedError) as caught:
        envs.step(np.zeros(2, dtype=np.int64))
    assert str(caught.value) == "HalfCheetah-v5: env 1 failed at step 3: expected finite rewards, got nan at (1,)"
    envpool.pools[-1].fault = RuntimeError("the motor\nis on fire")
    with pytest.raises(EnvironmentFailedError, match="envs failed at step 4: RuntimeError: the motor is on fire"):
        envs.step(np.zeros(2, dtype=np.int64))


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    library = tmp_path / "PyQt5" / "Qt5" / "lib" / QT_LIBRARY
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return library


@pytest.mark.parametrize("system_has_qt", [True, False])
def test_the_wheel_is_loaded_only_where_the_system_has_no_qt(system_has_qt, wheel, monkeypatch):
    loaded: list[str] = []

    def load(name: str) -> None:
        if name == QT_LIBRARY and not system_has_qt:
            raise OSError("no such library")
        loaded.append(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    load_qt()
    assert loaded == ([QT_LIBRARY] if system_has_qt else [str(wheel)])


def test_without_any_qt_nothing_is_raised_here(wheel, monkeypatch):
    """EnvPool notices it when an env is made, and that is where the user is told."""

    def fail(name: str) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    load_qt()
