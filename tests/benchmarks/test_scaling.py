"""The cost model of benchmarks/scaling.py at its limits, and that a calibration finds what made the numbers."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # for benchmarks

from benchmarks.processes import WORKLOADS, report, typical_iteration
from benchmarks.scaling import (
    Cost,
    Link,
    fit_cost,
    fit_link,
    gradient_step_seconds,
    iteration_seconds,
    message_seconds,
    message_share,
    minibatch_at_share,
    most_processes,
    prediction,
    rate,
    widened,
)

from swell.cli import parse

LINK = Link(latency=1e-4, bandwidth=1e9)
COST = Cost(
    num_envs=64,
    horizon=32,
    minibatch=512,
    gradient_steps=8,
    weights=1_000_000,
    transition_seconds=2e-4,
    sample_seconds=1e-3,
)


def test_one_process_sends_no_message():
    assert message_seconds(1, 1_000_000, LINK) == 0
    assert iteration_seconds(1, COST, LINK) == iteration_seconds(1, COST, Link(1e9, 1e-9))


def test_one_process_pays_nothing_for_being_together():
    assert iteration_seconds(1, replace(COST, together_seconds=1.0), LINK) == iteration_seconds(1, COST, LINK)


def test_a_message_of_two_processes_is_one_hop_and_the_whole_gradient():
    assert message_seconds(2, 1_000_000, LINK) == pytest.approx(1e-4 + 4e-3)


def test_twice_the_latency_adds_a_hop_for_each_doubling_and_gradient_step():
    slower = iteration_seconds(8, COST, Link(2e-4, 1e9)) - iteration_seconds(8, COST, LINK)
    assert slower == pytest.approx(8 * 3 * 1e-4)


def test_long_messages_approach_twice_the_gradient():
    assert message_seconds(2**20, 1_000_000, Link(0.0, 1e9)) == pytest.approx(8e-3, rel=1e-5)


def test_without_messages_and_fixed_costs_twice_the_processes_take_half_the_time():
    free = Link(0.0, float("inf"))
    assert rate(16, COST, free) == pytest.approx(16 * rate(1, COST, free))


def test_processes_beyond_the_processors_are_of_no_use():
    assert iteration_seconds(4, COST, LINK, processors=2) > iteration_seconds(2, COST, LINK, processors=2)


def test_very_many_processes_are_left_with_the_costs_that_are_not_divided():
    fixed = replace(COST, env_step_seconds=1e-3, gradient_step_seconds=5e-3)
    free = Link(0.0, float("inf"))
    assert iteration_seconds(2**30, fixed, free) == pytest.approx(32 * 1e-3 + 8 * 5e-3, rel=1e-5)


@pytest.mark.parametrize("processes", [2, 8, 512])
def test_the_minibatch_at_a_share_has_messages_of_that_share(processes):
    cost = replace(COST, sample_seconds=1e-6, gradient_step_seconds=1e-4)
    minibatch = minibatch_at_share(processes, cost, LINK, 0.1)
    assert message_share(processes, replace(cost, minibatch=minibatch), LINK) == pytest.approx(0.1)


def test_where_fixed_costs_hide_the_message_any_minibatch_will_do():
    assert minibatch_at_share(8, replace(COST, gradient_step_seconds=1.0), LINK, 0.1) == 0


def test_a_larger_minibatch_has_room_for_more_processes():
    def most(minibatch):
        return most_processes(replace(COST, minibatch=minibatch), lambda _: LINK, 0.1, range(1, 100))

    assert (most(1), most(100), most(1000)) == (1, 2, 14)


def test_a_wider_run_has_as_many_gradient_steps():
    wide = widened(COST, 4)
    assert (wide.batch, wide.minibatch, wide.gradient_steps) == (4 * COST.batch, 4 * 512, 8)


def test_the_prediction_for_one_rank_keeps_its_batch_and_its_learning_rate():
    row = prediction(1, COST)
    assert (row["message_ms"], row["batch_at_share"], row["learning_rate_factor"]) == (0, COST.batch, 1)


def message_row(processes, floats):
    return {"kind": "all-reduce", "processes": processes, "floats": floats} | {
        "seconds": message_seconds(processes, floats, LINK)
    }


def test_the_link_that_made_the_messages_is_found_by_processes_that_had_a_core():
    rows = [message_row(processes, floats) for processes in (2, 4) for floats in (1, 10_000, 1_000_000)]
    crowded = {**message_row(8, 10_000), "seconds": 1.0}
    found = fit_link([*rows, crowded], processors=4)
    assert (found.latency, found.bandwidth) == pytest.approx((LINK.latency, LINK.bandwidth))


def training_row(processes, cost):
    update = cost.gradient_steps * gradient_step_seconds(processes, cost, LINK, 2)
    return {
        **{"kind": "training", "workload": "some", "processes": processes, "threads": 1, "floats": cost.weights},
        **{"batch": cost.batch, "minibatch": cost.minibatch, "gradient_steps": cost.gradient_steps},
        **{"seconds": iteration_seconds(processes, cost, LINK, 2), "seconds_update": update},
    }


def test_a_calibration_by_1_and_2_processes_predicts_4():
    cost = replace(COST, together_seconds=3e-3)
    found = fit_cost([training_row(processes, cost) for processes in (1, 2)], "some", LINK, processors=2)
    assert found.together_seconds == pytest.approx(3e-3)
    assert iteration_seconds(4, found, LINK, 2) == pytest.approx(iteration_seconds(4, cost, LINK, 2))


def logged(iteration, seconds, horizon=32):
    total = {f"seconds_{part}": iteration * seconds for part in ("act", "env", "update")}
    rest = {"batch_size": 100, "minibatch_size": 25, "horizon": horizon, "gradient_steps": 8 * iteration}
    return {**rest, "steps_per_second": 100 / seconds, **total}


def test_the_first_and_a_cut_iteration_are_not_timed():
    found = typical_iteration([logged(1, 50.0), logged(2, 2.0), logged(3, 9.0, horizon=5)])
    assert (found["seconds"], found["steps_per_second"], found["gradient_steps"]) == (2.0, 50.0, 8)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_command_trains_what_the_config_says(name):
    workload = WORKLOADS[name]
    request = parse(workload.command(2, 1, "somewhere")[3:])
    assert request.processes == 2
    assert request.config == replace(workload.config(), threads=2)


def test_rows_of_one_workload_and_some_sides_are_reported_without_the_others(capsys):
    machine = {"load": 0.5, "cpu": "some", "round": 1}
    rows = [
        {"kind": "training", "workload": "some", "processes": processes, "threads": 1, "steps_per_second": 100.0}
        for processes in (1, 2)
    ]
    rows[1]["steps_per_second"] = 150.0
    report([{**row, **machine} for row in rows])
    assert "| some | 100 | – | 150 | – | 1.50 |" in capsys.readouterr().out
