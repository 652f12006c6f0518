"""Updates, readings, noise and clock of several processes are those of one; without any of what they tell, not."""

import math

import pytest
import torch
from rank_work import CASES, CONTROLS, everything, in_processes

TOLERANCE = 1e-6
"""Of weights, relative to the largest; in float64 two orders of the same sums are far nearer."""


@pytest.fixture(scope="module")
def alone():
    torch.set_num_threads(1)
    return everything()


@pytest.fixture(scope="module", params=[2, 3])
def together(request, tmp_path_factory):
    file = tmp_path_factory.mktemp("ranks") / "found"
    processes = in_processes(request.param, file)
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    return torch.load(file, weights_only=False)


def distance(one, other):
    """The largest difference of two sets of weights, beside the largest weight."""
    assert one["weights"].keys() == other["weights"].keys()
    one, other = (
        torch.cat([tensor.double().flatten() for tensor in found["weights"].values()]) for found in (one, other)
    )
    return ((one - other).abs().max() / one.abs().max()).item()


def readings_agree(one, other, tolerance=TOLERANCE):
    pairs = zip(one["readings"], other["readings"], strict=True)
    return all(row[name] == pytest.approx(row_of[name], rel=tolerance) for row, row_of in pairs for name in row)


@pytest.mark.parametrize("case", CASES)
def test_updates_of_several_processes_are_those_of_one(alone, together, case):
    one, several = alone["as it is"][case], together["as it is"][case]
    assert distance(one, several) < TOLERANCE
    for row, row_of in zip(one["metrics"], several["metrics"], strict=True):
        assert row.keys() == row_of.keys()
        assert all(row_of[name] == pytest.approx(row[name], rel=TOLERANCE, abs=1e-9) for name in row), case
    assert readings_agree(one, several)
    assert all(math.isfinite(reading) for row in one["readings"] for reading in row.values())


@pytest.mark.parametrize("what", ["local moments", "local statistics"])
def test_weights_move_elsewhere_if_each_process_normalises_by_its_own(alone, together, what):
    for case in CONTROLS[what]:
        assert distance(alone[what][case], together[what][case]) > TOLERANCE, case


def test_readings_differ_if_each_process_takes_its_own(alone, together):
    for case in CONTROLS["local readings"]:
        assert not readings_agree(alone["local readings"][case], together["local readings"][case]), case


@pytest.mark.parametrize("case", ["pqn", "ppo of minibatches", "ess"])
def test_compiled_networks_share_a_step_as_well(alone, together, case):
    # With an ε of 1 a step is about as far off as its gradient: 1e-6 is eight roundings of the largest weight.
    assert distance(alone["compiled"][case], together["compiled"][case]) < TOLERANCE


def test_each_process_acts_with_its_part_of_the_noise_of_one(alone, together):
    assert alone["noise"].keys() == together["noise"].keys()
    for name, actions in alone["noise"].items():
        torch.testing.assert_close(together["noise"][name], actions, msg=name)


def test_clock_and_episodes_are_those_of_one_process(alone, together):
    assert together["collected"] == alone["collected"]
    assert alone["collected"][-1][0] >= 145


def test_weights_that_differ_in_one_process_stop_the_run(alone, together):
    assert alone["differing"] is None
    assert together["differing"].startswith("at 1,000 env steps the weights of process 1")
