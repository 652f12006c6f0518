"""Checkpoints: what goes in comes out, what was damaged is noticed, and no crash or full disk loses a good one."""

import ast
import errno
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from full_disk import files_limited_to
from hypothesis import example, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import swell
from swell.errors import StorageError
from swell.runs import checkpoint
from swell.runs.checkpoint import (
    UnknownFormatError,
    checkpoint_name,
    load_checkpoint,
    load_newest,
    prune,
    save_checkpoint,
)

FILES = ("MANIFEST.json", "state.json", "state.safetensors")
TORCH_DTYPES = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32)
NUMPY_DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
)


def small_state(value: float = 1.0) -> dict[str, Any]:
    return {
        "learner": {"network": {"weight": torch.full((2, 3), value)}, "optimizer": {"state": {0: {"step": 7}}}},
        "rng": np.random.default_rng(1).bit_generator.state,
        "best_return": -float("inf"),
    }


def value_of(state: dict[str, Any]) -> float:
    return float(state["learner"]["network"]["weight"][0, 0])


def write_steps(directory: Path, *steps: int) -> list[Path]:
    return [save_checkpoint(directory, step, small_state(float(step))) for step in steps]


def flip(path: Path, position: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def listing(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def reseal(path: Path, **changes: Any) -> None:
    """Forge a manifest with a valid digest, as another version or an attacker could."""
    manifest = json.loads((path / "MANIFEST.json").read_text())
    del manifest["digest"]
    for name in FILES[1:]:
        manifest["files"][name] = checkpoint._fingerprint((path / name).read_bytes())
    (path / "MANIFEST.json").write_bytes(checkpoint._seal({**manifest, **changes}))


def no_report(line: str) -> None:
    pytest.fail(f"unexpected report: {line}")


def same(left: Any, right: Any) -> bool:
    """Equal in type, shape and every bit; a tuple may have become a list."""
    if isinstance(left, torch.Tensor):
        bits = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right)]
        return (
            type(right) is torch.Tensor
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and bits[0].equal(bits[1])
        )
    if isinstance(left, np.ndarray | np.generic):
        return (
            type(left) is type(right)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.tobytes() == right.tobytes()
        )
    if isinstance(left, dict):
        return (
            list(left) == list(right)
            and all(type(a) is type(b) for a, b in zip(left, right, strict=True))
            and all(same(left[key], right[key]) for key in left)
        )
    if isinstance(left, list | tuple):
        return type(right) is list and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return type(right) is float and struct.pack("d", left) == struct.pack("d", right)
    return type(left) is type(right) and left == right


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(TORCH_DTYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    raw = draw(st.binary(min_size=1, max_size=64))
    count = int(np.prod(shape)) * dtype.itemsize
    data = torch.tensor([raw[index % len(raw)] for index in range(count)], dtype=torch.uint8)
    return (data % 2 if dtype is torch.bool else data).view(dtype).reshape(shape)


numpy_arrays = NUMPY_DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, max_side=3))
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.text(),
    tensors(),
    numpy_arrays,
    numpy_arrays.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0]),
)
keys = st.one_of(st.text(), st.integers(), st.sampled_from(["$tensor", "$", "a/b", "a", "0", "__metadata__", "\ud800"]))
trees = st.recursive(
    leaves,
    lambda node: st.one_of(
        st.lists(node, max_size=4), st.lists(node, max_size=3).map(tuple), st.dictionaries(keys, node, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("saved"), 120_000, small_state())


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / saved.name)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(tree=trees)
@example(tree=[" a \n\0\ud800", "", -0.0, 0.1, 5e-324, 2**63, -(2**63), 2**64, 10**5000, {}, [], {0: 1, "0": 2}])
def test_any_tree_comes_back_bit_for_bit(tree: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_checkpoint(save_checkpoint(Path(folder), 5, {"state": tree, "__metadata__": torch.ones(1)}))
    assert same(tree, loaded["state"])


def test_colliding_paths_stay_apart(tmp_path: Path) -> None:
    state = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1), 0: torch.full((1,), 2.0), "0": torch.full((1,), 3.0)}}
    assert same(state, load_checkpoint(save_checkpoint(tmp_path, 1, state)))


def test_views_and_shared_tensors_are_saved_as_they_look(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"transposed": base.t(), "again": base, "row": base[1], "wide": base[:1].expand(5, 4)}
    arrays = {"reversed": np.arange(4)[::-1], "big_endian": np.arange(3, dtype=">i4")}
    state = {**tensors, **arrays, "parameter": torch.nn.Parameter(base)}
    loaded = load_checkpoint(save_checkpoint(tmp_path, 1, state))
    assert torch.equal(loaded["parameter"], base) and not loaded["parameter"].requires_grad
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())
    assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())


def test_loaded_tensors_can_be_written_to_without_touching_each_other(copied: Path) -> None:
    first, second = load_checkpoint(copied), load_checkpoint(copied)
    first["learner"]["network"]["weight"] += 1
    assert value_of(second) == 1.0


def test_random_generators_and_optimizers_continue_where_they_were(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.RAdam([parameter])
    parameter.sum().backward()
    optimizer.step()
    generator, numpy_generator = torch.Generator().manual_seed(3), np.random.default_rng(3)
    state = {
        "learner": optimizer.state_dict(),
        "torch": generator.get_state(),
        "numpy": numpy_generator.bit_generator.state,
    }
    loaded = load_checkpoint(save_checkpoint(tmp_path, 1, state))
    restored, numpy_restored = torch.Generator(), np.random.default_rng(4)
    restored.set_state(loaded["torch"])
    numpy_restored.bit_generator.state = loaded["numpy"]
    optimizer.load_state_dict(loaded["learner"])
    assert same(state["learner"], optimizer.state_dict())
    assert torch.equal(torch.rand(5, generator=generator), torch.rand(5, generator=restored))
    assert np.array_equal(numpy_generator.random(5), numpy_restored.random(5))


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (save_checkpoint(tmp_path / name, 9, small_state()) for name in "ab")
    assert listing(first) == listing(second)


@pytest.mark.parametrize(
    "odd", [{1, 2}, object(), 1j, b"bytes", np.array(["text"]), np.array([None]), torch.ones(2) * 1j]
)
def test_what_a_checkpoint_cannot_hold_is_refused_by_its_path(tmp_path: Path, odd: Any) -> None:
    with pytest.raises(StorageError, match="cannot save collector/odd"):
        save_checkpoint(tmp_path, 1, {"collector": {"odd": odd}})
    assert names(tmp_path) == []


def test_keys_other_than_words_and_numbers_are_refused(tmp_path: Path) -> None:
    for key in (True, None, (1, 2), 1.5):
        with pytest.raises(StorageError, match="key must be a str or an int"):
            save_checkpoint(tmp_path, 1, {"a": {key: 1}})


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_learner_that_is_not_finite_is_never_saved(tmp_path: Path, number: float) -> None:
    write_steps(tmp_path, 1)
    with pytest.raises(StorageError, match="learner/network/weight is not finite"):
        save_checkpoint(tmp_path, 2, small_state(number))
    assert names(tmp_path) == [checkpoint_name(1)]


def test_a_forged_learner_that_is_not_finite_is_not_loaded(copied: Path) -> None:
    tensors = safetensors.torch.load_file(copied / "state.safetensors")
    (copied / "state.safetensors").write_bytes(
        safetensors.torch.save({name: tensor * torch.nan for name, tensor in tensors.items()})
    )
    reseal(copied)
    with pytest.raises(StorageError, match="not finite"):
        load_checkpoint(copied)


def test_numbers_outside_the_learner_may_be_infinite(tmp_path: Path) -> None:
    state = {"collector": torch.tensor([torch.inf, torch.nan]), "best_return": -float("inf")}
    assert same(state, load_checkpoint(save_checkpoint(tmp_path, 1, state)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_any_changed_byte_is_noticed_and_named(saved: Path, name: str, place: float, mask: int) -> None:
    original = (saved / name).read_bytes()
    try:
        flip(saved / name, int(place * len(original)), mask)
        with pytest.raises(StorageError, match=f"{name}|format version"):
            load_checkpoint(saved)
    finally:
        (saved / name).write_bytes(original)


def test_every_changed_byte_of_the_manifest_is_noticed(saved: Path) -> None:
    original = (saved / "MANIFEST.json").read_bytes()
    assert len(checkpoint._parse_manifest(saved, original)) == 2
    for position in range(len(original)):
        for bit in range(8):
            changed = bytearray(original)
            changed[position] ^= 1 << bit
            with pytest.raises(StorageError):
                checkpoint._parse_manifest(saved, bytes(changed))


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_or_grown_is_noticed_and_named(copied: Path, name: str) -> None:
    original = (copied / name).read_bytes()
    for length in sorted({0, 1, *np.linspace(0, len(original) - 1, 20, dtype=int).tolist()}):
        (copied / name).write_bytes(original[:length])
        with pytest.raises(StorageError, match=name):
            load_checkpoint(copied)
    for addition in (b"\n", b"\0", b" " * 100_000):
        (copied / name).write_bytes(original + addition)
        with pytest.raises(StorageError, match=name):
            load_checkpoint(copied)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_terabyte_is_refused_without_being_read(copied: Path, name: str) -> None:
    os.truncate(copied / name, 1 << 40)
    with pytest.raises(StorageError, match=f"{name} has the wrong size"):
        load_checkpoint(copied)


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"{}", b"[" * 50_000, b'{"digest": 1}']
)
def test_a_manifest_of_garbage_is_refused_in_one_line(copied: Path, garbage: bytes) -> None:
    (copied / "MANIFEST.json").write_bytes(garbage)
    with pytest.raises(StorageError, match=r"MANIFEST.json is not a manifest") as caught:
        load_checkpoint(copied)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "files", [None, [], {}, {"state.json": 3}, {"state.json": {}, "state.safetensors": {"bytes": "x"}}]
)
def test_a_forged_list_of_files_is_refused(copied: Path, files: Any) -> None:
    reseal(copied, files=files)
    with pytest.raises(StorageError, match=r"not a manifest|wrong size"):
        load_checkpoint(copied)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(StorageError, match=f"{name}.* is missing"):
        load_checkpoint(copied)


def test_an_empty_or_absent_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / checkpoint_name(1)).mkdir()
    for path in (tmp_path / checkpoint_name(1), tmp_path / "absent"):
        with pytest.raises(StorageError, match=r"MANIFEST.json is missing"):
            load_checkpoint(path)


def test_a_checkpoint_under_the_name_of_another_step_is_refused(copied: Path) -> None:
    renamed = copied.rename(copied.with_name(checkpoint_name(130_000)))
    with pytest.raises(StorageError, match=r"MANIFEST.json belongs to step 120000"):
        load_checkpoint(renamed)


def test_the_manifest_of_another_step_is_refused(tmp_path: Path) -> None:
    one, two = write_steps(tmp_path, 1, 2)
    shutil.copy(one / "MANIFEST.json", two / "MANIFEST.json")
    with pytest.raises(StorageError, match="belongs to step 1"):
        load_checkpoint(two)


def test_a_copy_under_any_other_name_loads(copied: Path) -> None:
    assert value_of(load_checkpoint(copied.rename(copied.with_name("published")))) == 1.0


HOSTILE_TENSORS = {
    "a header of 2**63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "a header past the end": struct.pack("<Q", 4_000_000_000) + b"{}",
    "a shape that does not fit": (lambda h: struct.pack("<Q", len(h)) + h + b"\0" * 4)(
        b'{"a":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4]}}'
    ),
    "a header that is no JSON": struct.pack("<Q", 8) + b"garbage!",
    "nothing": b"",
}
HOSTILE_TREES = {
    "no JSON": b"{",
    "an unknown tag": b'{"$eval": "1"}',
    "a tensor that is not there": b'{"$tensor": "absent"}',
    "a key that cannot be one": b'{"$dict": [[[], 1]]}',
    "a bomb of brackets": b"[" * 100_000,
    "half a number": b'{"$float": "00"}',
    "a huge number": b"[" + b"9" * 10_000 + b"]",
}


@pytest.mark.parametrize("kind", HOSTILE_TENSORS)
def test_hostile_tensors_with_a_valid_manifest_are_refused(copied: Path, kind: str) -> None:
    (copied / "state.safetensors").write_bytes(HOSTILE_TENSORS[kind])
    reseal(copied)
    with pytest.raises(StorageError, match="cannot be decoded"):
        load_checkpoint(copied)


@pytest.mark.parametrize("kind", HOSTILE_TREES)
def test_a_hostile_tree_with_a_valid_manifest_is_refused(copied: Path, kind: str) -> None:
    (copied / "state.json").write_bytes(HOSTILE_TREES[kind])
    reseal(copied)
    with pytest.raises(StorageError, match="cannot be decoded"):
        load_checkpoint(copied)


@pytest.mark.parametrize("name", FILES)
def test_a_link_to_a_file_outside_is_refused(copied: Path, tmp_path: Path, name: str) -> None:
    (copied / name).rename(tmp_path / "elsewhere")
    (copied / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=f"{name} is a link"):
        load_checkpoint(copied)


def test_a_checkpoint_that_is_a_link_to_outside_is_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / saved.name).symlink_to(saved)
    with pytest.raises(StorageError, match="is a link"):
        load_checkpoint(tmp_path / saved.name)


def test_a_pipe_in_place_of_a_file_does_not_block(copied: Path) -> None:
    (copied / "state.json").unlink()
    os.mkfifo(copied / "state.json")
    with pytest.raises(StorageError, match=r"state.json is missing"):
        load_checkpoint(copied)


def test_another_format_is_refused_by_its_number_and_left_where_it_is(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 2)
    reseal(tmp_path / checkpoint_name(2), format=7)
    before = listing(tmp_path)
    with pytest.raises(UnknownFormatError, match="format version 7, this Swell reads 6"):
        load_newest(tmp_path, no_report)
    assert listing(tmp_path) == before


def test_the_newest_is_chosen_by_its_step_whatever_the_clock_says(tmp_path: Path) -> None:
    for index, path in enumerate(write_steps(tmp_path, 999, 1_000, 20)):
        os.utime(path, (index, index))
    found = load_newest(tmp_path, no_report)
    assert found is not None and (found[0], value_of(found[1])) == (1_000, 1_000.0)


def test_no_checkpoints_is_none(tmp_path: Path) -> None:
    assert load_newest(tmp_path, no_report) is None and load_newest(tmp_path / "absent", no_report) is None


def test_a_bad_one_is_moved_aside_with_one_line_and_the_one_before_is_loaded(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 2, 3)
    flip(tmp_path / checkpoint_name(3) / "state.safetensors", -1)
    (tmp_path / checkpoint_name(2) / "state.json").unlink()
    lines: list[str] = []
    found = load_newest(tmp_path, lines.append)
    assert found is not None and found[0] == 1
    assert names(tmp_path) == ["bad-" + checkpoint_name(2), "bad-" + checkpoint_name(3), checkpoint_name(1)]
    assert [("\n" in line, FILES[index] in line) for line, index in zip(lines, (2, 1), strict=True)] == [
        (False, True)
    ] * 2


def test_the_same_step_can_be_saved_and_fail_again_after_a_bad_one(tmp_path: Path) -> None:
    for _ in range(3):
        write_steps(tmp_path, 1, 2)
        flip(tmp_path / checkpoint_name(2) / "state.json", 3)
        found = load_newest(tmp_path, lambda line: None)
        assert found is not None and found[0] == 1
    bad = "bad-" + checkpoint_name(2)
    assert names(tmp_path) == [bad, bad + "-2", bad + "-3", checkpoint_name(1)]


def test_saving_over_a_bad_one_moves_it_aside(tmp_path: Path) -> None:
    write_steps(tmp_path, 2)
    flip(tmp_path / checkpoint_name(2) / "state.json", 3)
    damaged = (tmp_path / checkpoint_name(2) / "state.json").read_bytes()
    write_steps(tmp_path, 2)
    assert value_of(load_checkpoint(tmp_path / checkpoint_name(2))) == 2.0
    assert (tmp_path / ("bad-" + checkpoint_name(2)) / "state.json").read_bytes() == damaged


def test_a_foreign_file_in_the_place_of_a_checkpoint_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / checkpoint_name(2)).write_text("mine")
    write_steps(tmp_path, 2)
    assert (tmp_path / ("bad-" + checkpoint_name(2))).read_text() == "mine"


def test_saving_the_same_content_again_keeps_the_first(tmp_path: Path) -> None:
    (path,) = write_steps(tmp_path, 2)
    inode = path.stat().st_ino
    assert write_steps(tmp_path, 2) == [path] and path.stat().st_ino == inode and names(tmp_path) == [path.name]


def test_saving_other_content_at_the_same_step_replaces_it(tmp_path: Path) -> None:
    write_steps(tmp_path, 2)
    save_checkpoint(tmp_path, 2, small_state(5.0))
    assert value_of(load_checkpoint(tmp_path / checkpoint_name(2))) == 5.0 and names(tmp_path) == [checkpoint_name(2)]


def test_when_all_are_bad_each_is_named_and_nothing_changes(tmp_path: Path) -> None:
    for path in write_steps(tmp_path, 1, 2, 3):
        flip(path / "state.json", 0)
    before = listing(tmp_path)
    with pytest.raises(StorageError) as caught:
        load_newest(tmp_path, no_report)
    *reasons, last = str(caught.value).splitlines()
    assert [
        checkpoint_name(step) in reason and "state.json" in reason
        for step, reason in zip((3, 2, 1), reasons, strict=True)
    ]
    assert "all 3 are bad" in last and listing(tmp_path) == before and caught.value.exit_code == 5


def test_an_unmovable_bad_one_does_not_stop_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_steps(tmp_path, 1, 2)
    flip(tmp_path / checkpoint_name(2) / "state.json", 0)
    monkeypatch.setattr(os, "replace", failing_at(0, os.replace, errno.EROFS))
    lines: list[str] = []
    found = load_newest(tmp_path, lines.append)
    assert found is not None and found[0] == 1 and "Read-only file system" in lines[0]


def test_stray_and_foreign_entries_are_ignored_and_survive(saved: Path, tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 2, 3)
    ours = "step-000000000009"
    temporary = [".tmp-9-1", ".tmp-9-notes", "checkpoint_temp"]
    strays = [*temporary, "step-9", "step-0000000000009", "step--00000000009", f"{ours}~", f"{ours}.bak", f"{ours}\n"]
    strays += [f"bad-{ours}", "step-" + "\u0660" * 12]
    for name in strays:
        shutil.copytree(saved, tmp_path / name)
    (tmp_path / checkpoint_name(999)).write_text("a file")
    (tmp_path / checkpoint_name(saved_step := 120_000)).symlink_to(saved)
    found = load_newest(tmp_path, no_report)
    prune(tmp_path, no_report, keep=1)
    write_steps(tmp_path, 4)
    survivors = {*strays, checkpoint_name(999), checkpoint_name(saved_step), checkpoint_name(3), checkpoint_name(4)}
    assert found is not None and found[0] == 3 and set(names(tmp_path)) == survivors


def test_only_leftovers_of_dead_processes_are_cleared_by_the_next_save(tmp_path: Path) -> None:
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    mine, living, gone = (tmp_path / f".tmp-3-{pid}" for pid in (os.getpid(), os.getppid(), dead))
    for path in (mine, living, gone):
        path.mkdir(parents=True)
    (tmp_path / f".tmp-4-{dead}").symlink_to(tmp_path.parent)
    write_steps(tmp_path, 3)
    assert names(tmp_path) == sorted([living.name, f".tmp-4-{dead}", checkpoint_name(3)]) and tmp_path.exists()


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 2, 3, 4, 5)
    prune(tmp_path, no_report, keep=2, best=2)
    assert names(tmp_path) == [checkpoint_name(step) for step in (2, 4, 5)]


def test_bad_checkpoints_neither_count_nor_vanish_when_pruning(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 2, 3, 4, 5)
    for step in (2, 5):
        flip(tmp_path / checkpoint_name(step) / "state.safetensors", -1)
    prune(tmp_path, no_report, keep=2)
    assert names(tmp_path) == [checkpoint_name(step) for step in (2, 3, 4, 5)]


def test_too_few_good_ones_are_all_kept(tmp_path: Path) -> None:
    write_steps(tmp_path, 1, 2)
    prune(tmp_path, no_report, keep=3)
    assert names(tmp_path) == [checkpoint_name(1), checkpoint_name(2)]
    with pytest.raises(ValueError, match="keep must be at least 1"):
        prune(tmp_path, no_report, keep=0)


def test_a_failing_delete_is_only_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_steps(tmp_path, 1, 2, 3, 4)
    monkeypatch.setattr(os, "replace", failing_at(0, os.replace, errno.EACCES))
    lines: list[str] = []
    prune(tmp_path, lines.append, keep=2)
    assert names(tmp_path) == [checkpoint_name(step) for step in (2, 3, 4)]
    assert len(lines) == 1 and checkpoint_name(2) in lines[0] and "Permission denied" in lines[0]


def test_files_reach_the_disk_before_the_name_and_the_manifest_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, replace, rmtree = os.fsync, os.replace, shutil.rmtree
    write_steps(tmp_path, 1, 2)

    def recorded_sync(descriptor: int) -> None:
        events.append("sync " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        events.append(f"rename {source.name} {target.name}")
        replace(source, target)

    def recorded_rmtree(path: Path, ignore_errors: bool = False) -> None:
        events.extend([f"delete {path.name}"] if path.exists() else [])
        rmtree(path, ignore_errors)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    monkeypatch.setattr(shutil, "rmtree", recorded_rmtree)
    write_steps(tmp_path, 3)
    prune(tmp_path, no_report, keep=2)
    temporary, trash = f".tmp-3-{os.getpid()}", f".tmp-1-{os.getpid()}"
    assert events == [
        "sync state.safetensors",
        "sync state.json",
        "sync MANIFEST.json",
        f"sync {temporary}",
        f"rename {temporary} {checkpoint_name(3)}",
        f"sync {tmp_path.name}",
        f"rename {checkpoint_name(1)} {trash}",
        f"delete {trash}",
    ]


def failing_at(count: int, function: Callable[..., Any], code: int = errno.ENOSPC) -> Callable[..., Any]:
    """`function`, which raises OSError at its call number `count`."""
    calls = iter(range(10**9))

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if next(calls) == count:
            raise OSError(code, os.strerror(code))
        return function(*arguments, **options)

    return wrapped


@pytest.mark.parametrize(("name", "count"), [("mkdir", 0), ("replace", 0), *(("fsync", count) for count in range(4))])
def test_a_full_disk_keeps_what_is_there_and_leaves_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    write_steps(tmp_path, 1, 2)
    before = listing(tmp_path)
    monkeypatch.setattr(os, name, failing_at(count, getattr(os, name)))
    with pytest.raises(
        StorageError, match=rf"[0-9.]+ MB \(free: [0-9.]+ MB\).*{checkpoint_name(3)}.*No space left"
    ) as caught:
        write_steps(tmp_path, 3)
    assert listing(tmp_path) == before and names(tmp_path) == [checkpoint_name(1), checkpoint_name(2)]
    assert "\n" not in str(caught.value)
    write_steps(tmp_path, 3)
    assert load_newest(tmp_path, no_report)[0] == 3


def test_a_write_that_the_system_cuts_short_keeps_what_is_there(tmp_path: Path) -> None:
    write_steps(tmp_path, 1)
    before = listing(tmp_path)
    for size in (0, 1, 100, 300):
        with pytest.raises(StorageError, match="File too large"), files_limited_to(size):
            write_steps(tmp_path, 2)
        assert listing(tmp_path) == before and names(tmp_path) == [checkpoint_name(1)]


def test_a_checkpoints_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file" / "checkpoints", tmp_path / ("n" * 300) / "checkpoints", Path("/proc/swell")):
        with pytest.raises(StorageError, match=checkpoint_name(1)):
            write_steps(directory, 1)


def die_at(count: int, action: Callable[[], Any]) -> bool:
    """Run `action` in a child that dies, as by kill -9, at its system call number `count`; False if it lived."""
    child = os.fork()
    if child == 0:
        calls = iter(range(10**9))
        for name in ("fsync", "replace", "mkdir", "unlink", "rmdir"):
            setattr(os, name, lethal(getattr(os, name), calls, count))
        action()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def lethal(function: Callable[..., Any], calls: Iterator[int], count: int) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if next(calls) == count:
            os._exit(9)
        return function(*arguments, **options)

    return wrapped


@pytest.mark.parametrize("existing", [(1,), (1, 2)], ids=["a new step", "a step that is there already"])
def test_a_process_killed_at_any_call_leaves_the_newest_good_checkpoint(
    tmp_path: Path, existing: tuple[int, ...]
) -> None:
    count, died, outcomes = 0, True, []
    while died:
        folder = tmp_path / str(count)
        write_steps(folder, *existing)
        died = die_at(count, lambda: save_checkpoint(folder, 2, small_state(5.0)))  # noqa: B023
        found = load_newest(folder, no_report)
        assert found is not None
        outcomes.append(value_of(found[1]))
        save_checkpoint(folder, 2, small_state(5.0))
        prune(folder, no_report)
        left = [name for name in names(folder) if not name.startswith(".tmp")]
        assert left == [checkpoint_name(1), checkpoint_name(2)]
        count += 1
    assert outcomes == sorted(outcomes) and len(outcomes) > 6
    assert (outcomes[0], outcomes[-1]) == (float(existing[-1]), 5.0)


def test_a_process_killed_while_pruning_leaves_no_bad_checkpoint(tmp_path: Path) -> None:
    count, died = 0, True
    while died:
        folder = tmp_path / str(count)
        write_steps(folder, 1, 2, 3)
        died = die_at(count, lambda: prune(folder, no_report, keep=1))  # noqa: B023
        steps = [path for path in folder.iterdir() if path.name.startswith("step-")]
        assert checkpoint_name(3) in names(folder) and all(load_checkpoint(path) for path in steps)
        count += 1
    assert count > 4


def test_saving_and_loading_leaves_no_open_files(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for step in range(20):
        write_steps(tmp_path, step)
        prune(tmp_path, no_report)
    load_newest(tmp_path, no_report)
    assert len(os.listdir("/proc/self/fd")) == before


UNSAFE_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "__import__", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load", "np.load"}


def unsafe_uses(source: str) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            imported = {f"{module}.{alias.name}" for alias in node.names} & UNSAFE_CALLS
            found += [module] if module.split(".")[0] in UNSAFE_MODULES else sorted(imported)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in UNSAFE_CALLS:
            found.append(ast.unparse(node.func))
    return found


def test_nothing_in_swell_can_run_code_from_a_file() -> None:
    sources = {path: path.read_text() for folder in swell.__path__ for path in Path(folder).rglob("*.py")}
    assert len(sources) > 2
    assert {str(path): unsafe_uses(text) for path, text in sources.items() if unsafe_uses(text)} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "eval('1')",
    ],
)
def test_the_search_for_unsafe_code_finds_it(source: str) -> None:
    assert unsafe_uses(source)
