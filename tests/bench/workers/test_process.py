"""One run in one process: begun or continued, never twice, and its end told by an exit code and a last line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from kill import in_child, kill_at, same
from small_bench import ADAPTIVE, result, small_plan

from swell.bench.status import attempts, read_state
from swell.bench.workers import process
from swell.bench.workers.process import ATTEMPT, IN_USE, Ending, RunInUseError, attempt, carry_out, claim_of
from swell.errors import DivergedError
from swell.runs import driver, start as runs
from swell.runs.run_directory import RunLock, read_json
from swell.runs.sealed import write_sealed


@pytest.fixture(scope="module")
def planned():
    return small_plan(ADAPTIVE)[0]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, planned):
    directory = tmp_path_factory.mktemp("whole") / "run"
    carry_out(directory, planned.config)
    return result(directory)


def killed(directory, config, module, name, call):
    def work():
        kill_at(module, name, call, "before")
        carry_out(directory, config)

    assert in_child(work) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [(runs, "build", 1), (runs, "write_sealed", 1), (driver.Run, "_log", 15), (driver.Run, "_summarise", 1)],
)
def test_a_killed_run_is_begun_or_continued_and_ends_like_an_undisturbed_one(
    tmp_path, planned, undisturbed, module, name, call
):
    killed(tmp_path / "run", planned.config, module, name, call)
    assert carry_out(tmp_path / "run", planned.config)["status"] == "done"
    assert same(result(tmp_path / "run"), undisturbed)


def test_a_run_killed_while_its_config_was_written_is_begun_anew(tmp_path, planned, undisturbed):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.json.tmp").write_text('{"conf')
    carry_out(tmp_path / "run", planned.config)
    assert same(result(tmp_path / "run"), undisturbed)


def test_a_finished_run_is_returned_untouched(tmp_path, planned, capsys):
    carry_out(tmp_path / "run", planned.config)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*.json*")}
    assert capsys.readouterr().out.count(ATTEMPT) == 1
    assert carry_out(tmp_path / "run", planned.config)["status"] == "done"
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before}
    assert ATTEMPT not in capsys.readouterr().out


def test_a_diverged_run_is_a_result_and_is_not_tried_again(tmp_path, planned, monkeypatch):
    def diverge(self, iteration, seconds):
        raise DivergedError("the loss is nan")

    monkeypatch.setattr(driver.Run, "_log", diverge)
    assert attempt(tmp_path / "run", planned.config).code == 3
    monkeypatch.undo()
    assert attempt(tmp_path / "run", planned.config) == Ending(0, "diverged")


@pytest.mark.parametrize("place", ["claim", "run"])
def test_a_run_that_is_in_use_is_left_alone(tmp_path, planned, monkeypatch, place):
    monkeypatch.setattr(process, "CLAIM_SECONDS", 0.1)
    killed(tmp_path / "run", planned.config, driver.Run, "_log", 15)
    held = tmp_path / "run" if place == "run" else claim_of(tmp_path / "run")
    with RunLock(held):
        with pytest.raises(RunInUseError):
            carry_out(tmp_path / "run", planned.config)
        assert attempt(tmp_path / "run", planned.config).code == IN_USE


def test_a_slow_second_worker_does_not_begin_a_run_that_a_fast_one_has_ended(tmp_path, planned, undisturbed):
    """Both start at once; in one of them building takes longer than the whole run of the other."""

    def slow():
        original = runs.build

        def build(*arguments):
            time.sleep(3.0)
            return original(*arguments)

        runs.build = build
        carry_out(tmp_path / "run", planned.config)

    def forked(work):
        pid = os.fork()
        if pid == 0:
            log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            sys.stdout = os.fdopen(1, "w")
            code = 1
            try:
                work()
                code = 0
            except RunInUseError:
                code = IN_USE
            finally:
                sys.stdout.flush()
                os._exit(code)
        return pid

    pids = [forked(slow), forked(lambda: carry_out(tmp_path / "run", planned.config))]
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    assert codes in ([0, 0], [0, IN_USE])
    assert (tmp_path / "log").read_text().count(ATTEMPT) == 1
    assert same(result(tmp_path / "run"), undisturbed)


def test_a_moved_benchmark_continues_a_replay_that_has_no_checkpoint_yet(tmp_path):
    plan = small_plan(ADAPTIVE, f"ramp-replay:{ADAPTIVE}", seeds=2)
    old, new = tmp_path / "old", tmp_path / "new"
    follower = next(run for run in plan if run.source)
    source = next(run for run in plan if run.name == follower.source)
    carry_out(source.directory(old), source.config)
    killed(follower.directory(old), follower.resolved_config(old), driver.Run, "_log", 2)
    shutil.move(old, new)
    assert carry_out(follower.directory(new), follower.resolved_config(new))["status"] == "done"
    assert read_json(follower.directory(new) / "config.json")["config"]["ramp_from"] == str(source.directory(new))


def test_what_nobody_expected_leaves_a_traceback_and_one_line(tmp_path, planned, monkeypatch, capsys):
    def burst(*arguments):
        raise ZeroDivisionError("in an env of the user's")

    monkeypatch.setattr(runs, "build", burst)
    ending = attempt(tmp_path / "run", planned.config)
    assert ending == Ending(1, "unexpected ZeroDivisionError: in an env of the user's")
    assert "Traceback" in capsys.readouterr().err


def test_only_deaths_are_worth_another_attempt():
    assert [code for code in (0, 1, 2, 3, 4, 5, 6, IN_USE, 130, 143, -9, -11, -15) if Ending(code).died] == [
        *(130, 143, -9, -11, -15)
    ]


def start_worker(run, root, **request):
    """A worker process as the local executor starts it."""
    log = run.log(root)
    log.parent.mkdir(parents=True, exist_ok=True)
    asked = {"directory": str(run.directory(root)), "config": run.config.to_dict(), **request}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "swell.bench.workers.process"], stdin=subprocess.PIPE, stdout=output, stderr=output
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    process.stdin.flush()
    return process


def test_a_worker_whose_driver_is_gone_saves_and_stops(tmp_path, planned):
    [long_run] = small_plan(ADAPTIVE, total_env_steps=10_000_000)
    process = start_worker(long_run, tmp_path, watch_stdin=True)
    while not read_state(long_run, tmp_path).env_steps:
        assert process.poll() is None
        time.sleep(0.02)
    assert read_state(long_run, tmp_path).status == "in use"
    process.stdin.close()
    assert process.wait(60) == 143
    assert read_state(long_run, tmp_path).status == "interrupted" and attempts(long_run, tmp_path) == 1
    assert long_run.log(tmp_path).read_text().splitlines()[-1].startswith("swell: stopped at ")


def test_the_last_line_of_a_worker_says_why_it_failed(tmp_path, planned):
    directory = planned.directory(tmp_path)
    directory.mkdir(parents=True)
    config = {"env": "CartPole-v1", "no_such_option": 1}
    write_sealed(directory / "config.json", {"config": config, "versions": {}, "threads": 1})
    process = start_worker(planned, tmp_path)
    assert process.wait(60) == 5
    assert "unknown option no_such_option" in planned.log(tmp_path).read_text().splitlines()[-1]


def test_a_request_that_is_none_is_refused():
    asked = subprocess.run(
        [sys.executable, "-m", "swell.bench.workers.process"], input="{}\n", capture_output=True, text=True, check=False
    )
    assert asked.returncode == 2 and asked.stderr.startswith("swell: the request")
