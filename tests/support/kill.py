"""Runs in a child process that can be killed for real, and the means to compare what two runs left behind."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import torch

from swell.errors import SwellError
from swell.presets import make_config
from swell.runs.build import build
from swell.runs.checkpoint import load_newest
from swell.runs.logs import read_jsonl
from swell.runs.start import resume, run

WALL_CLOCK = ("wall_seconds", "steps_per_second", "seconds_act", "seconds_env", "seconds_update", "seconds_measure")


def small_config(env="CartPole-v1", **fields):
    """A run of a second or two that measures, adapts, evaluates and saves several times."""
    small = {
        "total_env_steps": 6000,
        "num_envs": 8,
        "min_horizon": 4,
        "max_horizon": 16,
        "measure_every": 4,
        "smoothing": 0.5,
        "calm_reading": 0.001,
        "history": 3,
        "evaluate_every": 2500,
        "evaluation_episodes": 4,
        "checkpoint_every": 700,
        "epsilon_fraction": 0.5,
        "threads": 1,
        # Lively to the end, whatever the presets say: readings that are all 0 would hide a forgotten history.
        "learning_rate": 2e-3,
        "anneal_learning_rate": False,
        "minibatch_rule": "count",
        "max_episode_steps": 200,
        "minibatches": 4,
    }
    return config_with(env, small, fields)


def config_with(env, defaults, fields):
    """A config with these fields, and with those of the defaults that such a run reads."""
    kinds = {name: fields[name] for name in ("preset", "algorithm", "scaler", "signal") if name in fields}
    read = make_config(env, **kinds).read_options
    return make_config(env, **{**{name: value for name, value in defaults.items() if name in read}, **fields})


def in_child(work):
    """Runs `work()` in a forked child; returns its exit code, or minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except SwellError as error:
            code = error.exit_code
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_and_kill(config, directory: Path, module, name, call, when="before"):
    """Kills the run with SIGKILL at the `call`-th call of `module.name`; True if it came that far."""

    def work():
        kill_at(module, name, call, when)
        run(config, directory, quiet=True)

    return in_child(work) == -signal.SIGKILL


def resume_and_kill(directory: Path, module, name, call, when="before"):
    def work():
        kill_at(module, name, call, when)
        resume(directory, quiet=True)

    return in_child(work) == -signal.SIGKILL


def kill_at(module, name, call, when):
    original, calls = getattr(module, name), 0

    def deadly(*arguments, **keywords):
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **keywords)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, name, deadly)


def run_and_signal(config, directory: Path, number, after_seconds):
    """Sends a signal to a run some time after its first log line; returns the exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run(config, directory, quiet=True)
            code = 0
        except SwellError as error:
            code = error.exit_code
        finally:
            os._exit(code)
    while not (directory / "metrics.jsonl").exists() or not (directory / "metrics.jsonl").stat().st_size:
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the run ended before it had begun"
        time.sleep(0.002)
    time.sleep(after_seconds)
    os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def outcome(directory: Path):
    """All that a finished run left behind, but for the clock on the wall."""
    found = load_newest(directory / "checkpoints", lambda text: None)
    assert found is not None
    state = found[1]
    for part in ("collector", "measurement"):
        state[part].pop("seconds")
    for name in ("wall_seconds", "train_seconds", "resume_count"):
        state["run"].pop(name)
    state.pop("logs")  # sizes depend on how many digits the clock has
    state.pop("description")  # a resumed run says so
    rows = [
        {name: value for name, value in row.items() if name not in WALL_CLOCK}
        for row in read_jsonl(directory / "metrics.jsonl")
    ]
    return {"state": state, "metrics": rows, "evaluations": read_jsonl(directory / "evaluations.jsonl")}


def same(one, other) -> bool:
    """Bitwise equality of two trees."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def fresh_state(config):
    """The state of a run that has not begun."""
    return build(config).state_dict()
