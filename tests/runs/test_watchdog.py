"""An env that hangs ends the run in a line that names it; a run that was paused goes on.

Nothing here depends on how fast a machine is: what must be found waits for ever, what must not be found is in no env,
or stopped for as long as it waits.
"""

import os
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
from registered_envs import register_all

from swell.envs import make_envs
from swell.errors import EnvironmentFailedError
from swell.runs.watchdog import Watchdog

if "SwellTest/Counting-v0" not in gymnasium.registry:
    register_all()


@pytest.fixture
def hanging():
    envs = make_envs("SwellTest/Faulty_hang-v0", num_envs=2)
    envs.reset()
    return envs


def test_a_step_that_hangs_is_named_with_its_env_and_its_place_in_the_source(hanging):
    def play():
        with Watchdog(0.5):
            for _ in range(9):
                hanging.step(np.zeros(2, dtype=np.int64))

    with pytest.raises(EnvironmentFailedError) as found:
        play()
    where = "SwellTest/Faulty_hang-v0: env 0 at step 4: no answer for 0.5 s, in step of registered_envs.py"
    assert str(found.value).startswith(where)


def test_what_takes_long_outside_of_envs_is_no_hang(hanging):
    with Watchdog(0.1):
        time.sleep(1.0)  # as an update or a checkpoint may


def test_nothing_is_watched_with_a_limit_of_zero():
    before = signal.getsignal(signal.SIGURG)
    with Watchdog(0.0):
        assert signal.getsignal(signal.SIGURG) is before


def test_handlers_and_threads_are_as_before_afterwards():
    before = signal.getsignal(signal.SIGURG)
    with Watchdog(60.0) as watchdog:
        assert signal.getsignal(signal.SIGURG) is not before
    assert signal.getsignal(signal.SIGURG) is before
    assert not watchdog._thread.is_alive()


PROGRAM = """
import os, sys, time
sys.path.insert(0, {support!r})
import numpy as np
import registered_envs
from registered_envs import FaultyEnv
from swell.envs import make_envs
from swell.runs.watchdog import Watchdog
registered_envs.register_all()
{before}
envs = make_envs("SwellTest/Faulty_hang-v0", num_envs=1)
envs.reset()
with Watchdog({seconds}, lambda: print("last words", flush=True)):
    for _ in range(9):
        envs.step(np.zeros(1, dtype=np.int64))
print("over")
"""


def program(before, seconds):
    support = os.path.join(os.path.dirname(__file__), "..", "support")
    return [sys.executable, "-c", PROGRAM.format(support=os.path.abspath(support), before=before, seconds=seconds)]


DEAF = """
def deaf(seconds):
    while True:
        try:
            sleep(seconds)
        except BaseException:
            pass
sleep, registered_envs.time = time.sleep, type("", (), {"sleep": deaf})
"""


def test_an_env_that_cannot_be_interrupted_ends_with_the_process():
    ended = subprocess.run(program(DEAF, 0.5), capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (4, "last words\n")
    assert "swell: SwellTest/Faulty_hang-v0: env 0 at step 4: no answer for 0.5 s" in ended.stderr


PAUSED = """
def paused(seconds):
    print("in a step", flush=True)
    sys.stdin.readline()
registered_envs.time = type("", (), {"sleep": paused})
"""


def test_a_process_that_was_stopped_for_longer_than_the_limit_goes_on():
    """All of its waiting is under SIGSTOP, but for the moments before and after."""
    process = subprocess.Popen(program(PAUSED, 4.0), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "in a step\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(6.0)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate("\n" * 9, timeout=120)
    assert (process.returncode, output.splitlines()[-1]) == (0, "over")
