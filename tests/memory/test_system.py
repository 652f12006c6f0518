"""What is free: of the machine, or of the container around this process if that is less."""

import sys

import numpy as np
import pytest

from swell.memory.system import free_memory, give_back_freed_memory, peak_memory_mb, resident_memory

MB = 2**20
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the peak is known")


def machine(root, available_mb=1000):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable:  {available_mb * 1024} kB\n")


def group(root, path, limit, used_mb, droppable_mb=0, version=2):
    limit_name, use_name, droppable = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    directory = root / "sys/fs/cgroup" / path
    directory.mkdir(parents=True, exist_ok=True)
    (directory / limit_name).write_text(f"{limit}\n")
    (directory / use_name).write_text(f"{used_mb * MB}\n")
    (directory / "memory.stat").write_text(f"anon 1\n{droppable} {droppable_mb * MB}\n")


def test_without_a_container_it_is_what_the_machine_has(tmp_path):
    machine(tmp_path, 1000)
    assert free_memory(tmp_path) == 1000 * MB


def test_nothing_is_known_where_nobody_says(tmp_path):
    assert free_memory(tmp_path) is None


def test_a_container_with_less_than_the_machine_decides(tmp_path):
    machine(tmp_path, 1000)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    group(tmp_path, "job", 500 * MB, used_mb=300, droppable_mb=50)
    assert free_memory(tmp_path) == 250 * MB


def test_a_container_around_the_container_decides_if_it_has_less(tmp_path):
    machine(tmp_path, 1000)
    (tmp_path / "proc/self/cgroup").write_text("0::/outer/inner\n")
    group(tmp_path, "outer/inner", "max", used_mb=100)
    group(tmp_path, "outer", 400 * MB, used_mb=300)
    assert free_memory(tmp_path) == 100 * MB


def test_a_container_that_sees_only_itself_is_found(tmp_path):
    machine(tmp_path, 1000)
    (tmp_path / "proc/self/cgroup").write_text("0::/docker/0123\n")  # as it is called outside
    group(tmp_path, "", 300 * MB, used_mb=100)
    assert free_memory(tmp_path) == 200 * MB


def test_the_first_version_of_control_groups_is_read_too(tmp_path):
    machine(tmp_path, 1000)
    (tmp_path / "proc/self/cgroup").write_text("5:cpu,cpuacct:/other\n4:memory:/job\n")
    group(tmp_path, "memory/job", 500 * MB, used_mb=300, version=1)
    group(tmp_path, "memory", 2**63 - 4096, used_mb=300, version=1)
    assert free_memory(tmp_path) == 200 * MB


@pytest.mark.parametrize("text", ["max", "", "nonsense"])
def test_a_container_without_a_limit_does_not_decide(tmp_path, text):
    machine(tmp_path, 1000)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    group(tmp_path, "job", text, used_mb=300)
    assert free_memory(tmp_path) == 1000 * MB


@on_linux
def test_this_process_holds_what_it_touches_and_its_peak_is_no_less():
    before = resident_memory()
    touched = np.ones(50 * MB, dtype=np.uint8)
    assert 45 * MB < resident_memory() - before < 60 * MB
    assert peak_memory_mb() * MB >= resident_memory() - MB
    del touched


@on_linux
def test_what_was_freed_can_be_given_back():
    pieces = [np.ones(60_000, dtype=np.uint8) for _ in range(1500)]  # too small for the system to be asked for each
    last = np.ones(60_000, dtype=np.uint8)  # holds the heap open
    held = resident_memory()
    del pieces
    give_back_freed_memory()
    assert held - resident_memory() > 60 * MB
    assert last.all()
