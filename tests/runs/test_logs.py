"""The logs of a run: whole lines, verified up to the checkpoint, cut back to it, and patient with a full disk."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from full_disk import files_limited_to
from hypothesis import given, settings, strategies as st

from swell.errors import StorageError
from swell.runs.logs import LONGEST_LINE, JsonLines, RunGoneError, read_jsonl


@pytest.fixture
def log(tmp_path: Path) -> Iterator[JsonLines]:
    log = JsonLines(tmp_path / "metrics.jsonl")
    yield log
    log.close()


def test_a_row_is_on_file_as_one_line_when_write_returns(log: JsonLines) -> None:
    rows = [{"env_steps": 1, "text": "a\nb é"}, {"env_steps": 2, "returns": [1.5, 2.5]}]
    for row in rows:
        log.write(row)
    assert read_jsonl(log.path) == rows and log.path.read_bytes().count(b"\n") == 2
    assert log.mark["bytes"] == log.path.stat().st_size


def test_numbers_that_are_not_finite_become_null_and_array_numbers_become_plain(log: JsonLines) -> None:
    nan, inf = float("nan"), float("inf")
    log.write({"loss": nan, "nested": {"best": -inf, "returns": [1.0, inf]}, "numpy": np.float32(0.5)})
    log.write(
        {"count": np.int64(3), "nan": np.float64(nan), "array": np.array([1.0, nan]), "tensor": torch.tensor(2.0)}
    )
    assert read_jsonl(log.path) == [
        {"loss": None, "nested": {"best": None, "returns": [1.0, None]}, "numpy": 0.5},
        {"count": 3, "nan": None, "array": [1.0, None], "tensor": 2.0},
    ]


def test_garbage_before_the_last_line_is_refused_by_its_number(tmp_path: Path) -> None:
    for garbage in ("{", "[1]", "\x00"):
        (tmp_path / "log").write_text('{"a": 1}\n' + garbage + '\n{"a": 2}\n')
        with pytest.raises(StorageError, match="line 2 is not"):
            read_jsonl(tmp_path / "log")


def test_a_log_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert read_jsonl(tmp_path / "absent.jsonl") == []


def test_a_log_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"absent/log"):
        JsonLines(tmp_path / "absent" / "log")


def test_sync_reaches_the_disk(log: JsonLines, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    log.sync()
    assert synced == [str(log.path)]


def test_a_resumed_log_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, cut = JsonLines(tmp_path / "whole"), JsonLines(tmp_path / "cut")
    for step in range(5):
        whole.write({"env_steps": step})
    for step in range(3):
        cut.write({"env_steps": step})
    cut.sync()
    mark = cut.mark
    cut.write({"env_steps": 3})
    cut.close()
    with open(tmp_path / "cut", "ab") as file:
        file.write(b'{"env_st')
    resumed = JsonLines(tmp_path / "cut", mark)
    for step in (3, 4):
        resumed.write({"env_steps": step})
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes() and resumed.mark == whole.mark


@given(cut=st.integers(0, 60))
@settings(max_examples=61, deadline=None, derandomize=True)
def test_whatever_a_crash_leaves_of_the_last_line_is_not_a_row(cut: int) -> None:
    whole = b"".join(json.dumps({"env_steps": step, "x": "é"}).encode() + b"\n" for step in range(3))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        path.write_bytes(whole[:cut])
        assert [row["env_steps"] for row in read_jsonl(path)] == list(range((whole[: cut + 1]).count(b"\n")))


def log_of_three(directory: Path) -> JsonLines:
    log = JsonLines(directory / "metrics.jsonl")
    for step in range(3):
        log.write({"env_steps": step, "loss": 0.25})
    log.close()
    return log


def test_each_flipped_bit_before_the_mark_is_found_and_those_after_it_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a thousand times
    log = log_of_three(tmp_path)
    data, after = log.path.read_bytes(), b'{"env_steps": 3}\n'
    aside = tmp_path / "bad-metrics.jsonl"
    for position in range(8 * (len(data) + len(after))):
        damaged = bytearray(data + after)
        damaged[position // 8] ^= 1 << position % 8
        log.path.write_bytes(damaged)
        said: list[str] = []
        JsonLines(log.path, log.mark, said.append).close()
        if position < 8 * len(data):
            assert "bad-metrics.jsonl" in said[0] and aside.read_bytes() == damaged and not log.path.read_bytes()
            aside.unlink()
        else:
            assert not said and log.path.read_bytes() == data and not aside.exists()


def test_a_log_that_is_lost_or_shorter_or_no_file_begins_anew(tmp_path: Path) -> None:
    log = log_of_three(tmp_path)
    data = log.path.read_bytes()
    (tmp_path / "elsewhere").write_bytes(data)
    for leave in (
        lambda: None,
        lambda: log.path.write_bytes(data[:-1]),
        lambda: log.path.mkdir(),
        lambda: os.mkfifo(log.path),
        lambda: log.path.symlink_to(tmp_path / "elsewhere"),
    ):
        with contextlib.suppress(FileNotFoundError):
            log.path.unlink()
        leave()
        said: list[str] = []
        again = JsonLines(log.path, log.mark, said.append)
        again.write({"env_steps": 9})
        assert len(said) == 1 and read_jsonl(log.path) == [{"env_steps": 9}]
        again.close()
    assert (tmp_path / "elsewhere").read_bytes() == data and len(list(tmp_path.glob("bad-*"))) == 4


def test_opening_a_whole_log_does_not_touch_it(tmp_path: Path) -> None:
    log = log_of_three(tmp_path)
    os.utime(log.path, ns=(5, 5))
    JsonLines(log.path, log.mark).close()
    assert log.path.stat().st_mtime_ns == 5


def test_a_huge_file_is_cut_back_to_what_was_logged_without_reading_the_rest(tmp_path: Path) -> None:
    log = log_of_three(tmp_path)
    data = log.path.read_bytes()
    os.truncate(log.path, 20_000_000_000)
    JsonLines(log.path, log.mark).close()
    assert log.path.read_bytes() == data


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\n')
    os.truncate(path, 100 * LONGEST_LINE)
    with pytest.raises(StorageError, match="line 2 is longer than any row"):
        read_jsonl(path)


def test_lines_that_a_full_disk_refuses_are_written_when_it_has_room(tmp_path: Path) -> None:
    said: list[str] = []
    log = JsonLines(tmp_path / "metrics.jsonl", report=said.append)
    log.write({"a": 1})
    mark = log.mark
    with files_limited_to(mark["bytes"] + 4):
        for number in (2, 3):
            log.write({"a": number})
        assert log.path.read_bytes() == b'{"a": 1}\n' and log.mark == mark
        with pytest.raises(StorageError, match=r"cannot write .*metrics.jsonl': File too large"):
            log.sync()
    assert len(said) == 1 and "File too large" in said[0]
    log.write({"a": 4})
    assert [row["a"] for row in read_jsonl(log.path)] == [1, 2, 3, 4]
    assert JsonLines(log.path, log.mark).mark == log.mark


@pytest.mark.parametrize("moved", ["deleted", "renamed"])
def test_a_log_whose_directory_is_gone_says_so_at_once(tmp_path: Path, moved: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    log = JsonLines(run / "metrics.jsonl")
    log.write({"a": 1})
    if moved == "deleted":
        log.path.unlink()
        run.rmdir()
    else:
        run.rename(tmp_path / "elsewhere")
    for act in (lambda: log.write({"a": 2}), log.sync):
        with pytest.raises(RunGoneError, match="run was deleted or moved away under the run"):
            act()


def test_a_log_that_is_replaced_says_so(log: JsonLines) -> None:
    log.write({"a": 1})
    log.path.unlink()
    log.path.write_text("another\n")
    with pytest.raises(RunGoneError, match=r"metrics.jsonl was deleted or replaced"):
        log.write({"a": 2})
