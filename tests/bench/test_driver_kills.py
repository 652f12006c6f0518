"""The driver of a benchmark is killed at random moments: nothing is lost, nothing is run twice, no bit changes."""

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kill import same
from small_bench import WITH_CONTROLS, result, small_plan

from swell.bench.status import attempts, is_held, read_states
from swell.bench.workers.process import carry_out
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import read_json

DRIVER = """
import sys
from pathlib import Path
from small_bench import WITH_CONTROLS, small_plan
from swell.bench.board import make_board
from swell.bench.workers.local import LocalExecutor
from swell.bench.queue import run_benchmark
from swell.runs.interrupt import InterruptedRunError

root, runs = Path(sys.argv[1]), small_plan(*WITH_CONTROLS, seeds=2)
try:
    outcome = run_benchmark(runs, root, LocalExecutor(root, 2), make_board(quiet=False), patience=60.0)
except InterruptedRunError as error:
    print(error)
    sys.exit(error.exit_code)
print(outcome.report())
sys.exit(1 if outcome.failed else 0)
"""
SUPPORT = str(Path(__file__).parents[1] / "support")
DAMAGE = (b"", b'{"runs": [{"name": "Cart', b"\x00\xff", None)


def plan():
    return small_plan(*WITH_CONTROLS, seeds=2)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The results of the same plan, run after run in this process."""
    root = tmp_path_factory.mktemp("undisturbed")
    for run in sorted(plan(), key=lambda run: run.source is not None):
        carry_out(run.directory(root), run.resolved_config(root))
    return {run.name: result(run.directory(root)) for run in plan()}


def start_driver(root):
    """The driver as a process of its own, which shares nothing with this one."""
    with (root / "driver.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(root)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, os.environ.get("PYTHONPATH", "")])},
            stdout=output,
            stderr=output,
        )


def rows(root):
    return sum(path.read_bytes().count(b"\n") for path in root.glob("runs/*/*/*/metrics.jsonl"))


def wait_for_moment(process, root, moment):
    """Either a while after the start, wherever that is, or after some more iterations of any run."""
    until, extra_rows = time.monotonic() + moment.uniform(0.1, 1.5), moment.randrange(1, 12)
    before = rows(root)
    if moment.random() < 0.3:
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
    else:
        # The count falls when a resumed run cuts back its log, hence the second way out.
        deadline = time.monotonic() + 60
        while process.poll() is None and rows(root) < before + extra_rows and time.monotonic() < deadline:
            time.sleep(0.01)


def finished_files(root):
    """Content and time of all that finished runs hold."""
    return {
        path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for state in read_states(plan(), root)
        if state.is_finished
        for path in [*state.run.directory(root).rglob("*"), state.run.log(root)]
        if path.is_file() and path.name != "run.lock"
    }


def kill_at_random_moments(root, kills, seed):
    """Kills driver after driver; returns how many were alive to be killed, and what was finished by then."""
    moment, killed, finished = random.Random(seed), 0, {}
    for number in range(kills):
        process = start_driver(root)
        wait_for_moment(process, root, moment)
        killed += process.poll() is None
        process.kill()
        process.wait()
        # The workers may write their last lines yet, to runs that they have not finished.
        finished.update({path: was for path, was in finished_files(root).items() if not _held_by_any(root, path)})
        damage = DAMAGE[number % len(DAMAGE)]
        if damage is None:
            (root / "index.json").unlink(missing_ok=True)
        else:
            (root / "index.json").write_bytes(damage)
    return killed, finished


def _held_by_any(root, path):
    return any(
        is_held(run.directory(root))
        for run in plan()
        if path.is_relative_to(run.directory(root)) or path == run.log(root)
    )


def check_kills(root, kills, seed, undisturbed):
    killed, finished = kill_at_random_moments(root, kills, seed)
    assert start_driver(root).wait() == 0, (root / "driver.txt").read_text()
    runs = plan()
    assert [state.status for state in read_states(runs, root)] == ["done"] * len(runs)
    assert {
        path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in finished
    } == finished
    for run in runs:
        directory = run.directory(root)
        assert same(result(directory), undisturbed[run.name]), run.name
        iterations = [row["iteration"] for row in read_jsonl(directory / "metrics.jsonl")]
        assert iterations == list(range(1, len(iterations) + 1))
        # Each attempt but the last was ended by a kill, so there are at most as many as drivers.
        assert 1 <= attempts(run, root) <= killed + 1
    entries = read_json(root / "index.json")["runs"]
    assert [(entry["name"], entry["status"]) for entry in entries] == [(run.name, "done") for run in runs]
    return killed


def test_a_driver_killed_at_ten_moments_loses_nothing_and_runs_nothing_twice(tmp_path, undisturbed):
    assert check_kills(tmp_path, 10, seed=1, undisturbed=undisturbed) == 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_a_driver_killed_at_up_to_thirty_moments_loses_nothing_and_runs_nothing_twice(tmp_path, undisturbed, seed):
    check_kills(tmp_path, 30, seed, undisturbed)


def test_two_drivers_at_once_share_the_runs_and_train_each_once(tmp_path, undisturbed):
    drivers = [start_driver(tmp_path) for _ in range(2)]
    assert [driver.wait() for driver in drivers] == [0, 0], (tmp_path / "driver.txt").read_text()
    for run in plan():
        assert attempts(run, tmp_path) == 1, run.log(tmp_path).read_text()
        assert same(result(run.directory(tmp_path)), undisturbed[run.name])
    processes = {re.findall(r"by process (\d+)", run.log(tmp_path).read_text())[0] for run in plan()}
    assert len(processes) == len(plan())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_driver_told_to_stop_lets_its_runs_save_and_says_how_to_go_on(tmp_path, number, code):
    process = start_driver(tmp_path)
    while not rows(tmp_path):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(60) == code
    assert not any(is_held(run.directory(tmp_path)) for run in plan())
    assert "the same command goes on" in (tmp_path / "driver.txt").read_text()
