"""When a run waits for kernels, when it goes without, and that nothing is compiled twice."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")

from swell.errors import ConfigError
from swell.presets import make_config
from swell.runs import compiling, start
from swell.runs.compiling import compile_kernels, path_for
from swell.runs.run_directory import read_json

SHORT, LONG = make_config("CartPole-v1", total_env_steps=2000), make_config("CartPole-v1", total_env_steps=10**8)


@pytest.fixture
def cold(monkeypatch):
    monkeypatch.setattr(compiling, "are_cached", lambda names: False)


def test_with_kernels_on_the_disk_there_is_nothing_to_say():
    assert path_for(SHORT) == ("auto", None) and path_for(LONG) == ("auto", None)


def test_a_short_run_does_not_wait_and_a_long_one_does(cold):
    path, line = path_for(SHORT)
    assert path == "autograd" and "swell compile" in line
    path, line = path_for(LONG)
    assert path == "auto" and "compiling" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "autograd"},
        {"network": "nature-cnn"},
        {"env": "ALE/Pong-v5"},
        {"precision": "bfloat16"},
    ],
    ids=str,
)
def test_where_there_are_no_kernels_nothing_is_said(cold, changes):
    config = make_config(changes.pop("env", "CartPole-v1"), total_env_steps=10**8, **changes)
    assert path_for(config) == (config.path, None)


def test_who_asks_for_kernels_gets_them_however_short_the_run(cold):
    path, line = path_for(make_config("CartPole-v1", total_env_steps=2000, path="compiled"))
    assert path == "compiled" and "compiling" in line


def test_a_run_says_which_way_it_went(cold, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(start, "compile_kernels", lambda: pytest.fail("a short run compiled"))
    start.run(SHORT, tmp_path / "run", evaluation_episodes=0)
    assert "too short to wait" in capsys.readouterr().out
    assert read_json(tmp_path / "run" / "config.json")["path"] == "autograd"


def test_without_the_extra_the_command_is_one_line(monkeypatch):
    monkeypatch.setattr(compiling, "can_compile", lambda: False)
    with pytest.raises(ConfigError, match=r"swell-rl\[fast\]"):
        compile_kernels()


def test_a_failed_compilation_is_one_line(cold, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\n  deep\nOSError: no space left on device\n")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **named: failed)
    with pytest.raises(ConfigError) as caught:
        compile_kernels()
    assert str(caught.value) == "kernels cannot be compiled: OSError: no space left on device; try --path autograd"


MISSES = """
import sys
import swell
from numba.core.dispatcher import Dispatcher
for number, options in enumerate([
    dict(env="CartPole-v1", algorithm="pqn"), dict(env="MinAtar/Breakout-v1", algorithm="pqn"),
    dict(env="CartPole-v1", algorithm="pqn", backend="compiled"),
    dict(env="Pendulum-v1", algorithm="ppo", backend="compiled", normalize_observations=True, normalize_rewards=True),
    dict(env="CartPole-v1", algorithm="ppo", signal="gradient_noise_scale", scaler="noise-scale", staleness=1),
    dict(env="Acrobot-v1", algorithm="ppg-ewma", phase_env_steps=64), dict(env="CartPole-v1", algorithm="ess"),
]):
    swell.run(options.pop("env"), f"{sys.argv[1]}/{number}", quiet=True, path="compiled", num_envs=4, horizon=8,
              total_env_steps=200, evaluation_episodes=2, max_episode_steps=20, **options)
functions = [value for name, module in sys.modules.items() if name.startswith("swell.")
             for value in vars(module).values() if isinstance(value, Dispatcher)]
missed = {function.__name__: list(function.stats.cache_misses) for function in functions if function.stats.cache_misses}
assert functions and not missed, missed
"""


def test_no_run_compiles_what_the_command_has_not(tmp_path):
    """Every algorithm, every kind of action, pixels and both backends, in a process that has compiled nothing."""
    done = subprocess.run(
        [sys.executable, "-c", MISSES, str(tmp_path)], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-1500:]
