"""What each process has for itself goes into one checkpoint, and comes out for as many processes or for others."""

import numpy as np
import pytest
import torch

from swell.runs.process_state import OWN, own_part, phases_anew, taken_apart, with_part


def part_of(rank, rows):
    """Of one of two processes, with two envs each."""
    part = dict.fromkeys(OWN)
    part["collector/observations"] = torch.full((2, 3), float(rank))
    part["collector/envs"] = {"state": rank}
    part["collector/episodes/return_so_far"] = np.array([2.0 * rank, 2.0 * rank + 1])
    part["collector/episodes/length_so_far"] = np.array([2 * rank, 2 * rank + 1])
    part["learner/reward_normalizer/returns"] = torch.tensor([10.0 * rank, 10.0 * rank + 1])
    part["collector/delay"] = {"waiting": [rank]}
    are_own = torch.tensor([(sample % 2 == rank) for sample in range(2 * rows)])
    numbers = torch.arange(2 * rows)[are_own]
    part["learner/phase"] = {"states": numbers[:, None].byte(), "returns": numbers.float(), "are_own": are_own}
    return part


def state():
    empty = {"return_so_far": None, "length_so_far": None}
    return {
        "collector": {"env_steps": 8, "observations": None, "envs": None, "delay": None, "episodes": empty},
        "learner": {"weights": 1.0, "reward_normalizer": {"returns": None}, "phase": None},
        "measurement": {"kept": None},
        "processes": [part_of(rank, 3) for rank in (0, 1)],
    }


def test_as_many_processes_get_back_what_they_had():
    common, parts = taken_apart(state(), 2)
    assert "processes" not in common
    for rank, part in enumerate(parts):
        restored = with_part(taken_apart(state(), 2)[0], part)
        assert restored["collector"]["envs"] == {"state": rank} and restored["collector"]["env_steps"] == 8
        assert own_part(restored)["learner/phase"] is part["learner/phase"]


@pytest.mark.parametrize("count", [1, 4])
def test_another_number_shares_columns_and_phases_anew_and_starts_envs_again(count):
    _, parts = taken_apart(state(), count)
    for name in ("collector/episodes/return_so_far", "collector/episodes/length_so_far"):
        assert np.concatenate([part[name] for part in parts]).tolist() == [0, 1, 2, 3]
    returns = torch.cat([part["learner/reward_normalizer/returns"] for part in parts])
    assert returns.tolist() == [0, 1, 10, 11]
    assert all(part["collector/envs"] is None and part["collector/delay"] == {"waiting": []} for part in parts)
    phases = [part["learner/phase"] for part in parts]
    assert torch.cat([phase["returns"] for phase in phases]).tolist() == [0, 1, 2, 3, 4, 5]
    assert ("are_own" in phases[0]) == (count > 1)
    if count > 1:
        assert torch.stack([phase["are_own"] for phase in phases]).sum(0).tolist() == [1] * 6


def test_a_state_of_one_process_is_dealt_to_several():
    alone = {**state(), "learner": {"phase": {"states": torch.arange(4)[:, None], "returns": torch.arange(4.0)}}}
    del alone["processes"]
    alone["collector"]["episodes"] = {"return_so_far": np.arange(4.0), "length_so_far": np.arange(4)}
    _, parts = taken_apart(alone, 2)
    assert [part["collector/episodes/return_so_far"].tolist() for part in parts] == [[0, 1], [2, 3]]
    assert [part["learner/phase"]["returns"].tolist() for part in parts] == [[0, 1], [2, 3]]


def test_an_empty_phase_stays_empty():
    assert [
        len(phase["returns"]) for phase in phases_anew([{"states": torch.empty(0), "returns": torch.empty(0)}], 3)
    ] == [0] * 3
