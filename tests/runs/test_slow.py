"""Long evidence, run by `make test-slow`: many kills, and learning on several seeds."""

import random
import signal

import numpy as np
import pytest
from kill import outcome, run_and_signal, same, small_config

from swell.presets import make_config
from swell.runs.start import resume, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "MinAtar/Breakout-v1"])
def test_kills_at_fifty_random_moments_change_nothing(tmp_path, env):
    config = small_config(env)
    run(config, tmp_path / "whole", quiet=True)
    expected = outcome(tmp_path / "whole")
    moments = random.Random(0)
    killed = 0
    for attempt in range(50):
        directory = tmp_path / f"run-{attempt}"
        killed += run_and_signal(config, directory, signal.SIGKILL, moments.uniform(0.0, 1.0)) == -signal.SIGKILL
        resume(directory, quiet=True)
        assert same(outcome(directory), expected), f"attempt {attempt}"
    assert killed >= 25


@pytest.mark.parametrize("seed", range(1, 6))
def test_cartpole_is_solved_within_200k_steps(tmp_path, seed):
    summary = run(make_config("CartPole-v1", seed=seed), tmp_path / "run", quiet=True)
    assert summary["env_steps"] <= 200_000 + 32
    assert summary["evaluation_return"] >= 475


@pytest.mark.parametrize("seed", range(1, 4))
def test_acrobot_is_solved(tmp_path, seed):
    summary = run(make_config("Acrobot-v1", seed=seed, total_env_steps=500_000), tmp_path / "run", quiet=True)
    assert summary["evaluation_return"] >= -100


def test_minatar_breakout_reaches_12_within_a_million_steps(tmp_path):
    pytest.importorskip("minatar")
    returns = [
        run("MinAtar/Breakout-v1", tmp_path / str(seed), seed=seed, evaluation_episodes=0, quiet=True)["final_return"]
        for seed in (1, 2, 3)
    ]
    assert np.mean(returns) >= 12.0, returns


@pytest.mark.parametrize("network", ["nature-cnn", "pqn-l", "pqn-xl"])
def test_128_envs_of_128_steps_train_on_atari(tmp_path, network):
    pytest.importorskip("ale_py")
    fields = {"scaler": "fixed", "horizon": 128, "network": network, "evaluation_episodes": 0}
    summary = run("ALE/Pong-v5", tmp_path / "run", quiet=True, total_env_steps=2 * 128 * 128, **fields)
    assert summary["status"] == "done"
