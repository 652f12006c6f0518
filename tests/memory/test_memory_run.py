"""The memory plan in a run: kept by the scaler, told once, stored, the same on resume; and memory that runs out."""

import json
import re
import subprocess
import sys

import pytest
from kill import outcome, run_and_kill, same, small_config

from swell.algorithms import pqn
from swell.config.run_config import config_from_dict
from swell.errors import OutOfMemoryError
from swell.memory import plan as memory, planner
from swell.runs import driver
from swell.runs.build import build
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import read_json
from swell.runs.start import resume, run

MB = memory.MB
CPU_MESSAGE = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
EAGER = {"measure_every": 1, "smoothing": 1.0, "calm_reading": 0.9, "history": 1}
"""Every reading asks for nearly the longest horizon."""


@pytest.fixture
def heavy_steps(monkeypatch):
    """Each step of the horizon is said to take 200 MB, so that a small run has something to give way with."""
    monkeypatch.setattr(memory, "VIEWS_OF_A_STEP", 200 * MB)


def limited(room_mb, **fields):
    """A config that may come to so much more than it needs at the shortest horizon."""
    bound = {} if fields.get("scaler") == "fixed" else {"max_horizon": 4}
    shortest = build(small_config(**bound, **fields)).memory_plan.predicted_mb
    return small_config(**fields, memory_limit=shortest + room_mb)


def test_a_run_never_plans_beyond_the_horizon_that_fits(tmp_path, heavy_steps, capsys):
    config = limited(1300, **EAGER)
    summary = run(config, tmp_path / "run")
    longest = read_json(tmp_path / "run" / "config.json")["memory"]["longest_horizon"]
    assert 8 <= longest <= 11
    rows = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert max(row["horizon"] for row in rows) == longest
    assert max(row["next_horizon"] for row in rows) == longest
    assert summary["predicted_memory_mb"] <= config.memory_limit
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("memory: ")]
    assert f"at horizon {longest}, limit {config.memory_limit:,.0f} MB" in line
    assert f"max_horizon is {longest} instead of 16" in line


def test_a_plan_is_stored_beside_the_options_as_they_were_asked_for(tmp_path, heavy_steps):
    config = limited(1300, minibatches=1, evaluation_episodes=0, total_env_steps=200)
    run(config, tmp_path / "run", quiet=True)
    described = read_json(tmp_path / "run" / "config.json")
    assert described["config"]["max_horizon"] == 16
    assert described["config"]["micro_batch_size"] == 1024
    plan = memory.MemoryPlan(**described["memory"])
    assert plan.micro_batch_size == memory.SMALLEST_MICRO_BATCH
    assert plan.predicted_mb <= plan.limit_mb < plan.asked_mb
    assert read_json(tmp_path / "run" / "summary.json")["predicted_memory_mb"] == plan.predicted_mb


def test_a_resumed_run_keeps_to_its_plan_whatever_is_free_by_then(tmp_path, heavy_steps, monkeypatch):
    """It ends like a run that was asked for what the plan made of it."""
    assert run_and_kill(limited(1300, **EAGER), tmp_path / "run", driver.Run, "_log", 25)
    plan = read_json(tmp_path / "run" / "config.json")["memory"]
    assert plan["longest_horizon"] < 16
    monkeypatch.setattr(planner, "memory_limit", lambda config, resident, free: 10**6 * MB)
    resume(tmp_path / "run", quiet=True)
    assert read_json(tmp_path / "run" / "config.json")["memory"] == plan
    asked = small_config(
        **EAGER, max_horizon=plan["longest_horizon"], micro_batch_size=plan["micro_batch_size"], memory_limit=10.0**6
    )
    run(asked, tmp_path / "asked", quiet=True)
    assert same(outcome(tmp_path / "run"), outcome(tmp_path / "asked"))


def test_a_fixed_horizon_is_refused_before_anything_is_created(tmp_path, heavy_steps):
    config = limited(500, scaler="fixed", horizon=4)
    with pytest.raises(OutOfMemoryError, match="horizon 16 with 8 envs"):
        run(config, tmp_path / "run", quiet=True, horizon=16)
    assert not (tmp_path / "run").exists()


def fail_at_first(calls, monkeypatch):
    """The first so many gradients of a run cannot be allocated."""
    accumulate, drive = pqn.accumulate_gradients, driver.Run.drive

    def failing_drive(self):
        count = iter(range(10**9))

        def accumulate_gradients(add_gradient, *arguments):
            def failing(*samples):
                if next(count) < calls:
                    raise RuntimeError(CPU_MESSAGE)
                return add_gradient(*samples)

            return accumulate(failing, *arguments)

        monkeypatch.setattr(pqn, "accumulate_gradients", accumulate_gradients)
        return drive(self)

    monkeypatch.setattr(driver.Run, "drive", failing_drive)


def test_a_run_goes_on_in_smaller_parts_and_says_so(tmp_path, monkeypatch, capsys):
    fail_at_first(2, monkeypatch)
    summary = run(small_config(total_env_steps=300, micro_batch_size=16, path="autograd"), tmp_path / "run")
    assert summary["status"] == "done"
    assert summary["micro_batch_size"] == 2
    lines = re.findall(r"^memory ran out: .*", capsys.readouterr().out, flags=re.MULTILINE)
    assert lines == ["memory ran out: micro-batches have 2 samples from now on"]


def test_a_resumed_run_remembers_what_there_was_room_for(tmp_path, monkeypatch, capsys):
    config = small_config(micro_batch_size=16, path="autograd")
    with monkeypatch.context() as failing:
        fail_at_first(1, failing)
        run(config, tmp_path / "whole", quiet=True)
        assert run_and_kill(config, tmp_path / "run", driver.Run, "_log", 40)
    summary = resume(tmp_path / "run")
    assert summary["micro_batch_size"] == 4
    assert "memory ran out" not in capsys.readouterr().out
    assert same(outcome(tmp_path / "run"), outcome(tmp_path / "whole"))


def test_a_run_that_has_no_room_for_one_sample_ends_with_the_way_out(tmp_path, monkeypatch):
    fail_at_first(10**9, monkeypatch)
    with pytest.raises(OutOfMemoryError, match="lower max_horizon, num_envs or micro_batch_size"):
        run(small_config(path="autograd"), tmp_path / "run", quiet=True)
    assert read_json(tmp_path / "run" / "summary.json")["status"] == "failed"


def in_a_process(code, *arguments):
    """What the code printed last, as JSON."""
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


SHORT_OF_ADDRESSES = """
import json, resource, sys
from swell.presets import make_config
from swell.runs.start import run

def hold_still(directory):
    config = make_config("CartPole-v1", num_envs=64, scaler="fixed", horizon=128, minibatch_size=8192, epochs=2,
                         hidden=(2048,), micro_batch_size=8192, total_env_steps=2 * 8192, threads=1,
                         probe_states=64, evaluation_episodes=0, path="autograd")
    import swell.runs.driver
    drive = swell.runs.driver.Run.drive
    def limited(self):
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + 200 * 2**20,) * 2)
        return drive(self)
    swell.runs.driver.Run.drive = limited
    return run(config, directory, quiet=True)

summary = hold_still(sys.argv[1])
print(json.dumps({name: summary[name] for name in ("status", "micro_batch_size")}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to RLIMIT_AS")
def test_allocations_that_really_fail_make_a_run_step_back(tmp_path):
    """200 MB of addresses for the update of 8192 samples, whose activations take half a gigabyte."""
    summary = in_a_process(SHORT_OF_ADDRESSES, str(tmp_path / "run"))
    assert summary["status"] == "done"
    assert 256 <= summary["micro_batch_size"] <= 4096


A_FEW_ITERATIONS = """
import json, sys
from swell.presets import make_config
from swell.runs.start import run

options = json.loads(sys.argv[1])
summary = run(make_config(options.pop("env"), **options), sys.argv[2], quiet=True)
rows = [json.loads(line) for line in open(sys.argv[2] + "/metrics.jsonl")]
print(json.dumps({**summary, "longest": max(row["horizon"] for row in rows)}))
"""
ALWAYS = {"measure_every": 1, "evaluation_episodes": 2, "epochs": 1}
BREAKOUT = {"env": "ALE/Breakout-v5", "num_envs": 128, "max_episode_steps": 50, **ALWAYS}
WORKLOADS = {
    "cartpole": {"env": "CartPole-v1", "num_envs": 32, "scaler": "fixed", "horizon": 64, "total_env_steps": 6144},
    "ppo-cartpole": {"env": "CartPole-v1", "algorithm": "ppo", "horizon": 128, "total_env_steps": 4096},
    "minatar": {
        "env": "MinAtar/Breakout-v1",
        "num_envs": 128,
        "scaler": "fixed",
        "horizon": 128,
        "total_env_steps": 32768,
    },
}
LONG_WORKLOADS = {
    "breakout-fixed": {**BREAKOUT, "scaler": "fixed", "horizon": 128, "total_env_steps": 2 * 128 * 128},
    "breakout-adaptive": {
        **BREAKOUT,
        "min_horizon": 16,
        "max_horizon": 128,
        "smoothing": 1.0,
        "calm_reading": 0.98,
        "volatile_reading": 0.99,
        "total_env_steps": (16 + 2 * 128) * 128,
    },
    "breakout-large-parts": {
        **BREAKOUT,
        "scaler": "fixed",
        "horizon": 128,
        "micro_batch_size": 1024,
        "total_env_steps": 2 * 128 * 128,
    },
    "pqn-l": {**BREAKOUT, "preset": "pqn-l", "scaler": "fixed", "horizon": 32, "total_env_steps": 2 * 32 * 128},
    "ppo-breakout": {**BREAKOUT, "algorithm": "ppo", "num_envs": 8, "horizon": 128, "total_env_steps": 3 * 8 * 128},
    "ppo-breakout-evaluated": {
        **BREAKOUT,
        "algorithm": "ppo",
        "num_envs": 8,
        "horizon": 128,
        "evaluation_episodes": 100,
        "total_env_steps": 3 * 8 * 128,
    },
}


def check_prediction(options, directory):
    summary = in_a_process(A_FEW_ITERATIONS, json.dumps({**ALWAYS, **options}), str(directory))
    assert summary["longest"] == read_json(directory / "config.json")["memory"]["longest_horizon"]
    assert summary["predicted_memory_mb"] == pytest.approx(summary["peak_memory_mb"], rel=0.1)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_prediction_is_within_a_tenth_of_what_is_measured(tmp_path, name):
    if name == "minatar":
        pytest.importorskip("minatar")
    check_prediction(WORKLOADS[name], tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_WORKLOADS)
def test_the_prediction_is_within_a_tenth_of_what_is_measured_on_atari(tmp_path, name):
    pytest.importorskip("ale_py")
    check_prediction(LONG_WORKLOADS[name], tmp_path / "run")


def test_a_config_with_a_limit_survives_json():
    config = small_config(memory_limit=123.5)
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config
