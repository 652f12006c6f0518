"""The lowest and the newest TRL that the extra allows, each put before the installed one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["trl==1.10.0", "trl>=1.10,!=1.15.*,<2"])
def test_everything_passes_on_another_version(wanted, tmp_path):
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), wanted]
    subprocess.run(install, check=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT)])}
    where = subprocess.run(
        [sys.executable, "-c", "import trl; print(trl.__file__)"], env=env, capture_output=True, text=True
    )
    assert where.stdout.startswith(str(tmp_path))
    tests = [str(ROOT / "tests" / "llm" / f"test_{name}.py") for name in ("ess_trainer", "trainer", "ranks")]
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "not slow", *tests], env=env, cwd=ROOT)
    assert run.returncode == 0
