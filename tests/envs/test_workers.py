"""Envs in worker processes: their faults, deaths and hangs are named, and they are restored like others."""

import os
import signal
import subprocess
import sys
import time

import pytest
from env_comparisons import failure_of, goes_on_alike, play, through_json

from swell.envs import EnvBatch
from swell.envs.workers import WorkerEnvs
from swell.errors import EnvironmentFailedError


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "RuntimeError: the motor is on fire"),
        ("nan_observation", "expected a finite observation, got nan at (1,)"),
        ("scalar_observation", "expected an observation of shape (3,), got ()"),
    ],
)
def test_a_fault_in_a_worker_says_the_same(fault, message, make):
    failure = failure_of(make(f"SwellTest/Faulty_{fault}-v0", async_envs=True))
    assert failure.endswith(f"failed at step 4: {message}")


def test_a_worker_that_was_killed_is_named_with_the_signal(make):
    envs = make("SwellTest/Counting-v0", num_envs=3, async_envs=True)
    play(envs)
    os.kill(envs._envs.processes[1].pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailedError, match="worker process of env 1 was killed by SIGKILL"):
        play(envs)


def test_a_worker_that_hangs_is_found_and_all_workers_end():
    envs = WorkerEnvs(EnvBatch("SwellTest/Faulty_hang-v0", num_envs=2, seed=0, env_timeout=0.5))
    start = time.monotonic()
    failure = failure_of(envs)
    assert failure.startswith("SwellTest/Faulty_hang-v0: env 0, 1 gave no answer for 0.5 s at step 4; --env-timeout")
    assert time.monotonic() - start < 10
    assert not any(process.is_alive() for process in envs._envs.processes)
    envs.close()


def test_envs_in_workers_are_restored_exactly(make, actions_for):
    original = make("Acrobot-v1", seed=1, async_envs=True, max_episode_steps=30)
    original.reset()
    actions = actions_for(original, 90)
    for row in actions[:40]:
        original.step(row)
    restored = make("Acrobot-v1", seed=1, async_envs=True, max_episode_steps=30)
    assert restored.load_state_dict(through_json(original.state_dict()), resume_count=1) is None
    assert goes_on_alike(original, restored, actions[40:])


def test_workers_outlive_the_signals_that_stop_a_run(make):
    envs = make("SwellTest/Counting-v0", num_envs=2, async_envs=True)
    play(envs)
    for process in envs._envs.processes:
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGTERM)
    play(envs)
    assert envs.state_dict()["envs"]
    envs.close()
    assert not any(process.is_alive() for process in envs._envs.processes)


PROGRAM = """
from swell.envs import make_envs
envs = make_envs({env!r}, num_envs=3, async_envs=True)
envs.reset()
{then}
"""


def program(then, env="CartPole-v1"):
    """What a program of its own leaves behind, which has three workers and never closes them."""
    code = PROGRAM.format(env=env, then=then)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_a_program_that_never_closes_its_workers_ends():
    ended = program("print('over')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "over\n", "")


def test_workers_of_a_killed_program_end_without_a_word():
    ended = program("import os; os.kill(os.getpid(), 9)")  # run() waits for all that hold its pipes: the workers too
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")


@pytest.mark.filterwarnings("error")  # as which gymnasium would print the traceback of a worker
def test_a_fault_in_a_worker_prints_no_traceback(make):
    assert "the motor is on fire" in failure_of(make("SwellTest/Faulty_raise-v0", async_envs=True))
