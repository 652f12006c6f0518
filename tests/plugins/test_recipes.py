"""The recipe for TorchRL collects as many frames as the controller asks for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchrl")
PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


def test_each_rollout_of_torchrl_has_the_length_that_was_asked_for():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    (recipe,) = (block for block in blocks if "torchrl" in block)
    done = subprocess.run([sys.executable, "-c", recipe], capture_output=True, text=True, timeout=300, check=True)
    lengths, next_lengths = zip(*(map(int, line.split()) for line in done.stdout.splitlines()), strict=True)
    assert lengths[0] == 64 and lengths[1:] == next_lengths[:-1]
    assert len(set(lengths)) > 3
