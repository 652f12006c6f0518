"""Long evidence, run by `make test-slow`: learning on several seeds."""

import numpy as np
import pytest

from swell.presets import make_config
from swell.runs.start import run

pytestmark = pytest.mark.slow


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
