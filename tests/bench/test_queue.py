"""The queue does what is left, once, in any state it finds; most of it is shown without training anything."""

import io
import json
import os
import signal
from collections import Counter
from dataclasses import replace

import pytest
from small_bench import ADAPTIVE, FakeExecutor, leave, small_plan

from swell.bench import queue
from swell.bench.board import PlainBoard, QuietBoard
from swell.bench.queue import run_benchmark
from swell.bench.workers.process import claim_of
from swell.errors import ConfigError
from swell.runs.interrupt import InterruptedRunError
from swell.runs.run_directory import RunLock, read_json

FIXED_1, ADAPTIVE_1 = "CartPole-v1/fixed-8/seed-1", "CartPole-v1/adaptive-4-16/seed-1"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(queue, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(queue, "REFRESH_SECONDS", 0.005)


def drive(runs, root, executor=None, board=None, retries=3, patience=0.05):
    executor = executor or FakeExecutor(root)
    return run_benchmark(runs, root, executor, board or QuietBoard(), retries, patience), executor


def statuses(root):
    return {entry["name"]: entry["status"] for entry in read_json(root / "index.json")["runs"]}


def test_every_run_is_started_once_in_the_order_of_the_plan(tmp_path):
    runs = small_plan(seeds=3)
    outcome, executor = drive(runs, tmp_path)
    assert executor.started == [run.name for run in runs]
    assert executor.most_at_once == 2 and executor.closed
    assert not outcome.failed and outcome.report() == "6 of 6 finished"
    assert statuses(tmp_path) == {run.name: "done" for run in runs}


def test_what_is_finished_is_skipped_and_what_was_interrupted_goes_on(tmp_path):
    runs = small_plan(seeds=2)
    leave(runs[0], tmp_path, "done")
    leave(runs[1], tmp_path, "diverged")
    leave(runs[2], tmp_path, "interrupted", env_steps=1000)
    outcome, executor = drive(runs, tmp_path)
    assert executor.started == [runs[2].name, runs[3].name]
    assert not outcome.failed and "4 of 4 finished (1 diverged)" in outcome.report()


def test_a_run_that_fails_by_itself_is_not_tried_again_and_the_rest_goes_on(tmp_path):
    runs = small_plan(seeds=2)
    outcome, executor = drive(runs, tmp_path, FakeExecutor(tmp_path, script={FIXED_1: ["failed"]}))
    assert Counter(executor.started) == Counter(run.name for run in runs)
    assert [state.run.name for state in outcome.failed] == [FIXED_1]
    assert "ZeroDivisionError" in outcome.report() and str(runs[0].log(tmp_path)) in outcome.report()


def test_a_second_start_tries_failed_runs_again(tmp_path):
    runs = small_plan()
    drive(runs, tmp_path, FakeExecutor(tmp_path, script={FIXED_1: ["failed"]}))
    outcome, executor = drive(runs, tmp_path)
    assert executor.started == [FIXED_1] and not outcome.failed


def test_what_died_is_tried_again_as_often_as_allowed(tmp_path):
    runs = small_plan()
    script = {FIXED_1: ["killed"] * 3, ADAPTIVE_1: ["killed"] * 5}
    outcome, executor = drive(runs, tmp_path, FakeExecutor(tmp_path, script=script))
    assert Counter(executor.started) == {FIXED_1: 4, ADAPTIVE_1: 4}
    assert [state.run.name for state in outcome.failed] == [ADAPTIVE_1]
    assert "died 4 times, at last: killed by SIGKILL" in outcome.report()


def test_a_run_whose_result_is_there_is_finished_however_its_process_ended(tmp_path):
    runs = small_plan("fixed:8")

    class DiesAfterTheEnd(FakeExecutor):
        def _end(self, run, config):
            super()._end(run, config)
            return replace(super()._end(run, config), code=-11)

    outcome, executor = drive(runs, tmp_path, DiesAfterTheEnd(tmp_path))
    assert executor.started == [FIXED_1] and not outcome.failed


def test_a_control_waits_for_the_run_that_it_follows(tmp_path):
    runs = small_plan(ADAPTIVE, f"matched-updates:{ADAPTIVE}", f"ramp-replay:{ADAPTIVE}", seeds=2)
    outcome, executor = drive(runs, tmp_path, FakeExecutor(tmp_path, jobs=8, script={ADAPTIVE_1: ["killed"]}))
    assert not outcome.failed and len(outcome.finished) == 6
    for run in runs:
        if run.source:
            last_start_of_source = len(executor.started) - 1 - executor.started[::-1].index(run.source)
            assert last_start_of_source < executor.started.index(run.name)


def test_a_failed_source_fails_those_that_follow_it(tmp_path):
    runs = small_plan("fixed:8", ADAPTIVE, f"matched-updates:{ADAPTIVE}")
    outcome, executor = drive(runs, tmp_path, FakeExecutor(tmp_path, script={ADAPTIVE_1: ["failed"]}))
    assert sorted(executor.started) == sorted([FIXED_1, ADAPTIVE_1])
    assert f"it follows {ADAPTIVE_1}, which failed" in outcome.report() and len(outcome.failed) == 2


def test_a_source_that_cannot_be_followed_fails_only_its_follower(tmp_path):
    runs = small_plan("fixed:8", ADAPTIVE, f"matched-updates:{ADAPTIVE}")
    (leave(runs[1], tmp_path) / "summary.json").write_text(json.dumps({"status": "diverged", "env_steps": 0}))
    outcome, _ = drive(runs, tmp_path)
    assert [state.run.name for state in outcome.failed] == [runs[2].name]
    assert f"cannot follow {ADAPTIVE_1}" in outcome.report() and len(outcome.finished) == 2


def test_a_run_that_another_process_holds_is_left_alone_and_is_no_failure(tmp_path):
    runs = small_plan()
    claim = claim_of(runs[0].directory(tmp_path))
    claim.mkdir(parents=True)
    with RunLock(claim):
        outcome, executor = drive(runs, tmp_path)
    assert executor.started == [ADAPTIVE_1] and not outcome.failed
    assert outcome.report() == "1 of 2 finished, 1 in use by others"


def test_a_run_that_its_holder_lets_go_is_taken(tmp_path):
    runs = small_plan()
    claim = claim_of(runs[0].directory(tmp_path))
    claim.mkdir(parents=True)
    lock = RunLock(claim).__enter__()

    class Releases(QuietBoard):
        shown = 0

        def show(self, states):
            self.shown += 1
            if self.shown == 20:
                lock.__exit__()

    outcome, executor = drive(runs, tmp_path, board=Releases(), patience=10.0)
    assert executor.started == [ADAPTIVE_1, FIXED_1] and len(outcome.finished) == 2


def test_a_driver_waits_for_a_source_that_another_one_trains(tmp_path):
    runs = small_plan(ADAPTIVE, f"matched-updates:{ADAPTIVE}")
    claim = claim_of(runs[0].directory(tmp_path))
    claim.mkdir(parents=True)
    lock = RunLock(claim).__enter__()

    class Finishes(QuietBoard):
        shown = 0

        def show(self, states):
            self.shown += 1
            if self.shown == 30:
                leave(runs[0], tmp_path, "done")
                lock.__exit__()

    outcome, executor = drive(runs, tmp_path, board=Finishes(), patience=0.0)
    assert executor.started == [runs[1].name] and len(outcome.finished) == 2


def test_a_worker_that_came_second_is_no_failure(tmp_path):
    runs = small_plan()
    script = {FIXED_1: ["in use", "in use"]}
    outcome, executor = drive(runs, tmp_path, FakeExecutor(tmp_path, script=script), patience=10.0)
    assert Counter(executor.started) == {FIXED_1: 3, ADAPTIVE_1: 1} and not outcome.failed


def test_what_failed_under_another_driver_meanwhile_is_not_tried_by_each(tmp_path):
    runs = small_plan()

    class OtherDriver(FakeExecutor):
        def submit(self, run, config):
            leave(runs[1], tmp_path, "failed")
            later = os.stat(tmp_path / "index.json").st_mtime + 1
            os.utime(runs[1].directory(tmp_path) / "summary.json", (later, later))
            super().submit(run, config)

    outcome, executor = drive(runs, tmp_path, OtherDriver(tmp_path, jobs=1))
    assert executor.started == [FIXED_1] and [state.run.name for state in outcome.failed] == [ADAPTIVE_1]


@pytest.mark.parametrize("damage", [b"", b'{"runs": [{"na', b"\x00\xff garbage", b"[1, 2]", None])
def test_a_damaged_index_changes_nothing_and_is_rebuilt(tmp_path, damage):
    runs = small_plan()
    drive(runs, tmp_path)
    before = (tmp_path / "index.json").read_bytes()
    (tmp_path / "index.json").unlink()
    if damage is not None:
        (tmp_path / "index.json").write_bytes(damage)
    outcome, executor = drive(runs, tmp_path)
    assert executor.started == [] and len(outcome.finished) == 2
    assert (tmp_path / "index.json").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["index.json", "runs"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_all_runs_and_says_how_to_go_on(tmp_path, number, code):
    runs = small_plan(seeds=2)
    executor = FakeExecutor(tmp_path, script={ADAPTIVE_1: ["killed"]})

    class Interrupts(QuietBoard):
        def show(self, states):
            if any(state.status == "running" for state in states) and not executor.stopped:
                os.kill(os.getpid(), number)

    with pytest.raises(InterruptedRunError, match="the same command goes on") as stopped:
        drive(runs, tmp_path, executor, Interrupts())
    assert stopped.value.exit_code == code and executor.stopped and executor.closed
    assert len(executor.started) == 2, "nothing is started after the signal"
    assert statuses(tmp_path)[ADAPTIVE_1] == "interrupted"


def test_a_directory_of_another_plan_is_refused_before_anything_runs(tmp_path):
    runs = small_plan(seeds=2)
    for run in runs[:2]:
        leave(run, tmp_path, config=replace(run.config, learning_rate=0.125, minibatches=2))
    executor = FakeExecutor(tmp_path)
    with pytest.raises(ConfigError) as refused:
        drive(runs, tmp_path, executor)
    assert executor.started == [] and executor.closed
    faults = {fault.split(" is ")[0]: fault for fault in refused.value.faults[:-1]}
    assert faults.keys() == {"learning_rate", "minibatches"}
    assert "but was 0.125" in faults["learning_rate"] and "and 1 more" in faults["learning_rate"]
    assert "choose another --out" in refused.value.faults[-1]


def test_what_the_plan_leaves_open_is_no_other_plan(tmp_path):
    runs = small_plan(ADAPTIVE, f"ramp-replay:{ADAPTIVE}", f"matched-updates:{ADAPTIVE}", seeds=2, checkpoint_every=0)
    elsewhere = {"threads": 7, "checkpoint_every": 150}
    for run in runs:
        if run.source is None:
            leave(run, tmp_path, "done", config=replace(run.config, **elsewhere))
    for run in runs:
        if run.source is not None:
            resolved = run.resolved_config(tmp_path)
            moved = {"ramp_from": "/moved/away"} if resolved.ramp_from else {}
            leave(run, tmp_path, config=replace(resolved, **elsewhere, **moved))
    outcome, _ = drive(runs, tmp_path)
    assert len(outcome.finished) == 6


def test_570_runs_of_which_some_fail_and_some_die_are_all_accounted_for(tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "REFRESH_SECONDS", 10.0)
    runs = small_plan("fixed:8", "fixed:16", seeds=285)
    failing = [run.name for run in runs[::40]]
    dying = [run.name for run in runs[7::40]]
    script = {**{name: ["failed"] for name in failing}, **{name: ["killed", "done"] for name in dying}}
    outcome, executor = drive(runs, tmp_path, FakeExecutor(tmp_path, jobs=50, script=script))
    assert [state.run.name for state in outcome.failed] == failing
    assert len(outcome.finished) == 570 - len(failing)
    assert len(executor.started) == 570 + len(dying)
    assert Counter(statuses(tmp_path).values()) == {"done": 570 - len(failing), "failed": len(failing)}


def test_plain_lines_tell_what_happens(tmp_path):
    runs = small_plan()
    stream = io.StringIO()
    executor = FakeExecutor(tmp_path, jobs=1, script={FIXED_1: ["killed", "done"], ADAPTIVE_1: ["failed"]})
    drive(runs, tmp_path, executor, PlainBoard(stream))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("0 of 2 finished")
    told = "\n".join(lines)
    assert f"starts {FIXED_1}" in told and f"{FIXED_1}: killed by SIGKILL; going on from its checkpoint" in told
    assert f"finished {FIXED_1}, score 30.0" in told and f"failed {ADAPTIVE_1}: the env raised" in told
