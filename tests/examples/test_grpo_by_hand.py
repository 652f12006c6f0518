"""A hand-written loop over a language model takes the ESS objective in two lines, and learns with it."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("transformers", reason='swell.llm.tasks needs the extra "trl"')

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import grpo_by_hand  # noqa: E402


def test_it_learns(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["grpo_by_hand.py", "--generations", "40"])
    assert grpo_by_hand.main() > 0.3  # it starts near 0.22
    assert "e of the last pass 0.9" in capsys.readouterr().out


def test_the_objective_takes_two_lines():
    lines = (EXAMPLES / "grpo_by_hand.py").read_text().splitlines()
    assert sum(line.endswith("# swell") for line in lines) == 2
