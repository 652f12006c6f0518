"""Where and with what a table was measured."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "numpy", "numba", "gymnasium", "ale-py", "minatar", "mujoco", "envpool", "stable-baselines3")
ROOT = Path(__file__).parents[2]


def describe_machine() -> dict[str, str]:
    """What a reader needs to judge the numbers, and to get them again."""
    return {
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "system": f"{platform.system()}, {platform.machine()}",
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "swell": f"commit {commit()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def load() -> float:
    """Processes that ran or wanted to, averaged over a minute; ours are among them."""
    return os.getloadavg()[0]


def commit() -> str:
    """The commit that is measured, and whether files differ from it."""
    try:
        name = _git("rev-parse", "--short", "HEAD")
        return f"{name} with changes" if _git("status", "--porcelain", "src") else name
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
