"""What the system says of memory: how much this process holds, and how much it could still have. In bytes."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CGROUP_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Controller (none in version 2) to the names of its limit, its use and the part of that which can be dropped."""


def resident_memory() -> int | None:
    """What this process holds now; None on Windows, which keeps no such count here."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = peak_memory_mb()  # the nearest that macOS has
    return None if peak is None else round(peak * 2**20)


def give_back_freed_memory() -> None:
    """Gives to the system what the C library keeps of memory that was freed; does nothing if that is not GNU's."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory_mb() -> float | None:
    """The most that this process ever held; None on Windows."""
    with suppress(OSError, StopIteration):  # Linux; getrusage there begins with what the parent held
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    if sys.platform == "win32":
        return None
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def free_memory(root: Path = Path("/")) -> int | None:
    """What can be had without swapping, of the machine or of the container if that is less; None if nothing says."""
    return min([*_free_in_machine(root), *_free_in_groups(root)], default=None)


def _free_in_machine(root: Path) -> Iterator[int]:
    with suppress(OSError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                yield int(line.split()[1]) * 1024


def _free_in_groups(root: Path) -> Iterator[int]:
    """Of each control group around this process: its own, and those that contain it."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in {"", "memory"} & set(controllers.split(",")):
                mount = root / "sys/fs/cgroup" / controller
                own = mount / path.lstrip("/")
                for group in [own, *own.parents]:
                    if group == mount or mount in group.parents:
                        yield from _free_in_group(group, *CGROUP_FILES[controller])


def _free_in_group(group: Path, limit: str, use: str, droppable: str) -> Iterator[int]:
    with suppress(OSError, ValueError):  # the root of version 2 has no limit; without one the file says "max"
        most, used = int((group / limit).read_text()), int((group / use).read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        yield most - used + int(statistics.get(droppable, 0))
