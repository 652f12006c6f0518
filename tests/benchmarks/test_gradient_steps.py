"""That the cases of benchmarks/gradient_steps.py train; nothing here is timed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # for benchmarks

from benchmarks.gradient_steps import CASES, learners, measure, told


def test_two_paths_are_told_with_the_ratio_of_each_round():
    seconds = {"autograd": [2e-3, 4e-3, 4e-3], "compiled": [1e-3, 1e-3, 3e-3]}
    assert told(seconds, 1e3, "ms") == "autograd 4 ms, compiled 1 ms, compiled / autograd 0.50 (0.25..0.75)"


def test_one_path_has_no_ratio():
    assert told({"the only path": [2e-3]}, 1e3, "ms") == "the only path 2 ms"


@pytest.mark.parametrize("name", ["ppo-ewma-cartpole", "ppg-cartpole"])
def test_a_case_is_measured(name, capsys):
    measure(name, rounds=1)
    assert name in capsys.readouterr().out


def test_an_unknown_path_leaves_the_one_there_is(monkeypatch):
    monkeypatch.setattr("benchmarks.gradient_steps.PATHS", ("no such path",))
    assert list(learners(CASES["ppo-ewma-cartpole"])) == ["the only path"]
