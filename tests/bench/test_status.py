"""What a run directory says about its run, whatever state it was left in."""

import json
import multiprocessing
import time
from dataclasses import replace

import pytest
from kill import in_child
from small_bench import ADAPTIVE, leave, small_plan

from swell.bench import status
from swell.bench.status import attempts, is_held, last_line, last_row, read_state, read_states, write_index
from swell.bench.workers.process import claim_of
from swell.runs.run_directory import RunLock, read_json


@pytest.fixture
def planned():
    return small_plan("fixed:8")[0]


@pytest.mark.parametrize("ending", ["done", "diverged", "failed", "interrupted"])
def test_a_summary_tells_how_the_run_ended(tmp_path, planned, ending):
    leave(planned, tmp_path, ending)
    state = read_state(planned, tmp_path)
    assert state.status == ending and state.is_finished == (ending in ("done", "diverged"))
    assert (state.env_steps, state.episode_return, state.horizon) == (2000, 21.5, 8)
    assert state.score == (30.0 if state.is_finished else None)


def test_without_a_summary_a_run_was_interrupted_and_without_a_config_there_is_none(tmp_path, planned):
    assert read_state(planned, tmp_path).status == "missing"
    planned.directory(tmp_path).mkdir(parents=True)
    assert read_state(planned, tmp_path).status == "missing"
    leave(planned, tmp_path, env_steps=1000)
    state = read_state(planned, tmp_path)
    assert state.status == "interrupted" and state.fraction_done == 0.5 and state.steps_per_second == 500.0


@pytest.mark.parametrize("place", ["claim", "run"])
def test_a_held_lock_outdoes_an_old_summary(tmp_path, planned, place):
    directory = leave(planned, tmp_path, "failed")
    held = claim_of(directory) if place == "claim" else directory
    held.mkdir(exist_ok=True)
    with RunLock(held):
        assert read_state(planned, tmp_path).status == "in use"
    assert read_state(planned, tmp_path).status == "failed"


def test_a_result_outdoes_a_lock(tmp_path, planned):
    with RunLock(leave(planned, tmp_path, "done")):
        assert read_state(planned, tmp_path).status == "done"


def test_looking_at_a_lock_leaves_no_trace_and_does_not_keep_it(tmp_path, planned):
    directory = planned.directory(tmp_path)
    assert not is_held(directory) and not directory.exists()
    directory.mkdir(parents=True)
    with RunLock(directory):
        holder = (directory / "run.lock").read_bytes()
        assert is_held(directory) and is_held(directory)
        assert (directory / "run.lock").read_bytes() == holder
    assert not is_held(directory)
    with RunLock(directory):
        pass


def test_two_who_look_do_not_see_each_other(tmp_path):
    """A shared lock is asked for: of many who look at once at a free run, none takes it for held."""
    claim = claim_of(tmp_path / "run")
    claim.mkdir()
    with RunLock(claim):
        pass

    def look():
        assert not any(is_held(tmp_path / "run") for _ in range(3000))

    lookers = [multiprocessing.get_context("fork").Process(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    assert [looker.exitcode for looker in lookers] == [0, 0, 0]


def test_a_killed_holder_holds_nothing(tmp_path):
    claim = claim_of(tmp_path / "run")
    claim.mkdir()
    assert in_child(lambda: RunLock(claim).__enter__()) == 0
    assert not is_held(tmp_path / "run")


def test_a_control_waits_until_its_source_has_a_result(tmp_path):
    runs = small_plan(ADAPTIVE, f"matched-updates:{ADAPTIVE}")
    assert [state.status for state in read_states(runs, tmp_path)] == ["missing", "waiting"]
    leave(runs[0], tmp_path, "interrupted")
    assert [state.status for state in read_states(runs, tmp_path)] == ["interrupted", "waiting"]
    leave(runs[0], tmp_path, "diverged")
    assert [state.status for state in read_states(runs, tmp_path)] == ["diverged", "missing"]


@pytest.mark.parametrize("name", ["summary.json", "config.json"])
def test_garbage_in_a_run_directory_does_not_stop_the_others(tmp_path, planned, name):
    (leave(planned, tmp_path, "done" if name == "config.json" else None) / name).write_text("{")
    assert read_state(planned, tmp_path).status == ("failed" if name == "summary.json" else "done")


def test_the_last_whole_row_counts_and_a_torn_one_does_not(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert last_row(path) == {}
    path.write_bytes(b'{"env_steps": 1}\n{"env_steps": 2}\n{"env_st')
    assert last_row(path) == {"env_steps": 2}
    path.write_bytes(b"\x00" * 100)
    assert last_row(path) == {}


def test_the_last_row_of_a_long_log_is_found_quickly(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(b'{"env_steps": %d, "filler": "%s"}\n' % (n, b"x" * 500) for n in range(100_000)))
    started = time.perf_counter()
    assert last_row(path)["env_steps"] == 99_999
    assert time.perf_counter() - started < 0.1


def test_the_last_line_of_a_log_is_told_without_the_mark_of_its_speaker(tmp_path):
    (tmp_path / "log").write_text("a warning\nswell: the env raised\n\n")
    assert last_line(tmp_path / "log") == "the env raised"
    assert last_line(tmp_path / "no log") == ""


def test_the_index_has_an_entry_for_every_run(tmp_path, planned):
    leave(planned, tmp_path, "done")
    planned.log(tmp_path).parent.mkdir()
    planned.log(tmp_path).write_text("--- attempt begun\nwords\n--- attempt continued\n")
    assert attempts(planned, tmp_path) == 2
    write_index([replace(read_state(planned, tmp_path), reason="")], tmp_path)
    [entry] = read_json(tmp_path / "index.json")["runs"]
    assert entry == {
        "name": "CartPole-v1/fixed-8/seed-1",
        "env": "CartPole-v1",
        "variant": "fixed:8",
        "seed": 1,
        "status": "done",
        "env_steps": 2000,
        "score": 30.0,
        "attempts": 2,
        "log": "logs/CartPole-v1_fixed-8_seed-1.log",
    }


def test_many_drivers_may_write_the_index_at_once(tmp_path, planned):
    states = [read_state(planned, tmp_path)] * 50

    def write():
        for _ in range(30):
            write_index(states, tmp_path)
            assert len(json.loads((tmp_path / status.INDEX).read_text())["runs"]) == 50

    writers = [multiprocessing.get_context("fork").Process(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == [status.INDEX]
