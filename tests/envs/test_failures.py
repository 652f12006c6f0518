"""Envs that break: one line that says which env, when, what was expected and what came."""

import os
import signal
import time

import numpy as np
import pytest

from swell.envs import EnvSettings
from swell.envs.workers import WorkerEnvs
from swell.errors import EnvironmentFailedError

FAULTS = {
    "raise": "RuntimeError: the motor is on fire",
    "nan_observation": "expected a finite observation, got nan at (1,)",
    "huge_observation": "expected a finite observation, got inf at (1,)",
    "nan_reward": "expected a finite reward, got nan",
    "text_reward": "expected a number as reward, got 'good'",
    "integer_flag": "expected terminated and truncated to be booleans, got 1",
    "scalar_observation": "expected an observation of shape (3,), got ()",
    "wrong_shape": "expected an observation of shape (3,), got (4,)",
}


def play(envs, steps: int = 5) -> None:
    envs.reset()
    for _ in range(steps):
        envs.step(np.zeros(envs.num_envs, dtype=np.int64))


def failure_of(envs) -> str:
    with pytest.raises(EnvironmentFailedError) as caught:
        play(envs)
    return str(caught.value)


@pytest.mark.parametrize(("fault", "message"), FAULTS.items())
def test_a_fault_stops_the_run_and_says_where(fault, message, make):
    expected = f"SwellTest/Faulty_{fault}-v0: env 0 failed at step 4: {message}"
    assert failure_of(make(f"SwellTest/Faulty_{fault}-v0")) == expected


@pytest.mark.parametrize("fault", ["raise", "nan_observation", "scalar_observation"])
@pytest.mark.filterwarnings("ignore")  # gymnasium prints the traceback of the worker as a warning
def test_a_fault_in_a_worker_says_the_same(fault, make):
    message = failure_of(make(f"SwellTest/Faulty_{fault}-v0", asynchronous=True))
    assert message.endswith(f"failed at step 4: {FAULTS[fault]}")


def test_the_error_of_the_env_is_kept_as_the_cause(make):
    with pytest.raises(EnvironmentFailedError) as caught:
        play(make("SwellTest/Faulty_raise-v0"))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("Observation", "expected finite observations, got inf at (1, 2)"),
        ("Reward", "expected finite rewards, got nan at (1,)"),
    ],
)
def test_a_fault_in_a_vectorised_env_names_the_env(fault, message, make):
    expected = f"SwellTest/VectorFault{fault}-v0: env 1 failed at step 2: {message}"
    assert failure_of(make(f"SwellTest/VectorFault{fault}-v0")) == expected


def test_a_worker_that_was_killed_is_named_with_the_signal(make):
    envs = make("SwellTest/Counting-v0", num_envs=3, asynchronous=True)
    play(envs)
    os.kill(envs._envs.processes[1].pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailedError, match="worker process of env 1 was killed by SIGKILL"):
        play(envs)


def test_a_worker_that_hangs_is_found_and_all_workers_end():
    envs = WorkerEnvs(EnvSettings("SwellTest/Faulty_hang-v0", num_envs=2, seed=0), timeout_seconds=0.5)
    start = time.monotonic()
    assert failure_of(envs) == "SwellTest/Faulty_hang-v0: env 0, 1 gave no answer for 0.5 s at step 4"
    assert time.monotonic() - start < 10
    assert not any(process.is_alive() for process in envs._envs.processes)
    envs.close()
