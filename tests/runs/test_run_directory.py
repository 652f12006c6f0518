"""The run directory: never overwritten, one process at a time, and logs without torn or doubled lines."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from full_disk import files_limited_to
from hypothesis import given, settings, strategies as st

from swell.errors import ConfigError, StorageError
from swell.runs.run_directory import (
    RunLock,
    create_run_directory,
    default_run_name,
    next_free,
    read_json,
    write_json_atomic,
)


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from swell.runs.run_directory import *\nimport os, sys, time\n" + script]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *map(str, arguments)], stdin=pipe, stdout=pipe, text=True, env=environment)


def test_a_new_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    create_run_directory(tmp_path / "a" / "b" / "run")
    assert list((tmp_path / "a" / "b" / "run").iterdir()) == []


def test_an_empty_directory_or_one_with_only_a_lock_is_taken(tmp_path: Path) -> None:
    create_run_directory(tmp_path)
    (tmp_path / "run.lock").touch()
    create_run_directory(tmp_path)


def test_a_directory_with_anything_in_it_is_refused_and_the_ways_out_are_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError) as caught:
        create_run_directory(tmp_path)
    message = str(caught.value)
    assert f"swell resume {tmp_path}" in message and "--new" in message and "\n" not in message
    assert (tmp_path / "config.json").read_text() == "{}" and caught.value.exit_code == 2


def test_a_path_that_cannot_be_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (
        tmp_path / "file",
        tmp_path / "file" / "run",
        tmp_path / ("n" * 300),
        Path("/proc/run"),
        tmp_path / "a\0b",
    ):
        with pytest.raises(StorageError) as caught:
            create_run_directory(path)
        assert repr(str(path)) in str(caught.value) and "\n" not in str(caught.value) and caught.value.exit_code == 5
    assert (tmp_path / "file").read_text() == "kept"


def test_an_empty_directory_that_cannot_be_written_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(StorageError, match="Read-only file system"):
        create_run_directory(tmp_path)


def test_the_next_free_name_counts_from_two(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for expected in ("run", "run-2", "run-3"):
        assert next_free(path) == tmp_path / expected
        next_free(path).mkdir()
        (tmp_path / expected / "config.json").touch()
    (tmp_path / "run-4").write_text("a file")
    (tmp_path / "run-5").symlink_to(tmp_path / "nowhere")
    assert next_free(path) == tmp_path / "run-6"


def test_the_default_name_says_env_algorithm_scaler_and_seed() -> None:
    assert default_run_name("ALE/Pong-v5", "pqn", "adaptive", 1) == "Pong-v5-pqn-adaptive-s1"
    assert default_run_name("CartPole-v1", "ppo_ewma", "fixed", 0) == "CartPole-v1-ppo_ewma-fixed-s0"


@given(st.text(), st.text(), st.text(), st.integers())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_default_name_is_one_plain_component_inside_the_root(
    env: str, algorithm: str, scaler: str, seed: int
) -> None:
    name = default_run_name(env, algorithm, scaler, seed)
    assert Path("root", name).parent == Path("root") and name.isascii() and not name.startswith(".")
    assert not set(name) & set("/\\\0\n<>:\"'|?* ")


@pytest.mark.parametrize(
    "odd", ["../x", "/etc/passwd", "a\0b", "a\nb", "<script>", "n" * 300, "..", "", "C:\\x", "\u0421ON", "."]
)
def test_odd_env_names_become_plain_ones(tmp_path: Path, odd: str) -> None:
    create_run_directory(tmp_path / default_run_name(odd, "pqn", "fixed", 1))
    assert len(list(tmp_path.iterdir())) == 1


HOLD = "with RunLock(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()"


def test_a_second_process_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    holder = start(HOLD, tmp_path)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with (
        pytest.raises(ConfigError, match=rf"in use by process {holder.pid} on {os.uname().nodename}"),
        RunLock(tmp_path),
    ):
        pass
    holder.communicate("")
    with RunLock(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / "run.lock").read_text()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    holder = start(HOLD, tmp_path)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    with RunLock(tmp_path):
        assert f"process {os.getpid()} on" in (tmp_path / "run.lock").read_text()


def test_a_forked_worker_does_not_keep_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    script = """
with RunLock(Path(sys.argv[1])):
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(60)
"""
    parent = start(script, tmp_path)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(ConfigError), RunLock(tmp_path):
            pass
        parent.kill()
        parent.wait()
        with RunLock(tmp_path):
            os.kill(child, 0)
    finally:
        os.kill(child, 9)
        parent.stdout.close()


def test_a_forked_worker_that_ends_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    script = """
with RunLock(Path(sys.argv[1])):
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    try:
        RunLock(Path(sys.argv[1])).__enter__()
    except ConfigError as error:
        print(error)
"""
    output, _ = start(script, tmp_path).communicate()
    assert "is in use by process" in output


RACE = """
import multiprocessing
context = multiprocessing.get_context("fork")

def contend(barrier, root, wins):
    for number in range(100):
        directory = root / str(number)
        directory.mkdir(exist_ok=True)
        barrier.wait(20)
        try:
            with RunLock(directory):
                wins[number] += 1
                barrier.wait(20)
        except ConfigError as error:
            assert "in use by process" in str(error), error
            barrier.wait(20)
        barrier.wait(20)

barrier, wins = context.Barrier(2), context.Array("i", 100)
processes = [context.Process(target=contend, args=(barrier, Path(sys.argv[1]), wins)) for _ in range(2)]
[process.start() for process in processes]
[process.join() for process in processes]
print(list(wins), [process.exitcode for process in processes])
"""


def test_of_two_racing_processes_exactly_one_gets_the_lock(tmp_path: Path) -> None:
    output, _ = start(RACE, tmp_path).communicate()
    assert output.strip() == f"{[1] * 100} [0, 0]"


def test_a_lock_in_a_missing_directory_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"absent/run.lock"), RunLock(tmp_path / "absent"):
        pass


def test_a_refused_or_released_lock_leaves_no_open_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with RunLock(tmp_path), pytest.raises(ConfigError), RunLock(tmp_path):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_json_file_is_replaced_whole_and_synced_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, events = tmp_path / "summary.json", []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (events.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name), sync(fd))
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("rename"), replace(a, b)))
    write_json_atomic(path, {"status": "done", "loss": float("nan")})
    assert read_json(path) == {"status": "done", "loss": None}
    assert events == [".summary.json.tmp", "rename", tmp_path.name]


def test_a_failed_write_keeps_the_old_json_file(tmp_path: Path) -> None:
    write_json_atomic(tmp_path / "summary.json", {"a": 1})
    with pytest.raises(StorageError, match=r"summary.json': File too large"), files_limited_to(2):
        write_json_atomic(tmp_path / "summary.json", {"a": 2})
    assert read_json(tmp_path / "summary.json") == {"a": 1} and len(list(tmp_path.iterdir())) == 1


def test_a_json_file_that_is_absent_or_garbage_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "torn.json").write_text("{")
    for name in ("absent.json", "list.json", "torn.json"):
        with pytest.raises(StorageError, match=name):
            read_json(tmp_path / name)
