"""A loop that is not ours learns with the batch controller in it, and stays readable without it."""

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from cleanrl_style_ppo import train  # noqa: E402

pytestmark = pytest.mark.portable


def test_the_controller_takes_at_most_twenty_lines():
    lines = (EXAMPLES / "cleanrl_style_ppo.py").read_text().splitlines()
    marked = [line for line in lines if line.rstrip().endswith("# swell")]
    assert 1 <= len(marked) <= 20
    assert all("swell" not in line for line in lines[9:] if line not in marked)


def test_it_learns_with_a_batch_that_grows():
    log = train(total_steps=25_000, seed=1)
    assert log["return"][-1] > 80.0 > 2 * log["return"][0]  # at random it is about 22
    assert log["horizon"][0] == 32 and max(log["horizon"]) > 64
    assert all(32 <= horizon <= 512 for horizon in log["horizon"])


def test_without_the_controller_it_is_plain_ppo():
    log = train(total_steps=4_096, adaptive=False, seed=1)
    assert set(log["horizon"]) == {128} and log["steps"][-1] == 4_096
