"""The memory plan: what is predicted, what gives way first, and what is refused."""

import json
from dataclasses import replace

import pytest

from swell.config.run_config import RunConfig
from swell.errors import ConfigError, OutOfMemoryError
from swell.memory.dry_run import Held
from swell.memory.plan import (
    FIRST_USE,
    FRAGMENTATION,
    MB,
    SAVED_COPIES,
    SMALLEST_MICRO_BATCH,
    VIEWS_OF_A_STEP,
    DryRun,
    Footprint,
    Growth,
    MemoryPlan,
    Needs,
    describe,
    memory_limit,
    needs_of,
    plan_memory,
)

NOTHING = Growth([(0.0, 0.0)], 0.0)
NO_NEEDS = Needs(*[NOTHING] * 8)
ADAPTIVE = RunConfig("CartPole-v1", num_envs=64, min_horizon=16, max_horizon=128, minibatch_size=4096)
FIXED = replace(ADAPTIVE, scaler="fixed", horizon=128)


def per_sample(amount, per_row=0.0):
    return Growth([(0.0, amount * MB)], per_row * MB)


HUNGRY = replace(NO_NEEDS, updating=per_sample(1.0), rollout=per_sample(0.0, per_row=0.1))
"""A megabyte per sample in a gradient step, a tenth for each row of a rollout."""


def footprint(config=ADAPTIVE, needs=HUNGRY, resident=0.0, each_env=0.0, evaluation_envs=0):
    return Footprint(config, needs, resident, each_env, evaluation_envs)


def tried(samples, rows, levels):
    return DryRun(samples, rows, Held(*[levels] * 8))


def test_three_dry_runs_say_what_any_other_would_hold():
    def held(samples, rows):
        return tried(samples, rows, [7 + 100 * samples + 3 * rows])

    growth = needs_of(held(4, 8), held(8, 16), held(4, 16)).updating
    assert growth.at(1000, 50_000) == pytest.approx(7 + 100 * 1000 + 3 * 50_000)


def test_a_large_batch_may_have_its_peak_at_another_moment_than_a_small_one():
    def held(samples, rows):
        return tried(samples, rows, [10_000 + samples, 10 * samples])  # a large weight's gradient; activations

    growth = needs_of(held(4, 8), held(8, 16), held(4, 16)).updating
    assert growth.at(8, 0) == 10_008
    assert growth.at(100_000, 0) == 1_000_000


def test_dry_runs_of_different_lengths_are_compared_by_their_peaks():
    growth = needs_of(tried(4, 8, [40]), tried(8, 16, [10, 80]), tried(4, 16, [40])).updating
    assert growth.at(100, 0) == 1000


def test_the_peak_is_what_lasts_and_the_largest_of_what_passes():
    needs = replace(
        HUNGRY,
        learner=Growth([(5.0 * MB, 0.0)], 0.0),
        acting=per_sample(2.0),
        kept=per_sample(0.5),
        saved=Growth([(1000.0 * MB, 0.0)], 0.0),
    )
    config = replace(ADAPTIVE, micro_batch_size=1000, probe_states=10)
    lasting = 300 * MB + FIRST_USE + 5 * MB + 64 * 64 * 0.1 * MB + 64 * VIEWS_OF_A_STEP

    def peak(**fields):
        return footprint(config, replace(needs, **fields), resident=300 * MB).peak(64, 1000)

    assert peak() == pytest.approx(lasting + SAVED_COPIES * 1000 * MB)
    acting_and_kept = (64 * 2.0 + 10 * 0.5) * MB
    assert peak(saved=NOTHING) == pytest.approx(lasting + FRAGMENTATION * (acting_and_kept + 1000 * MB))
    assert peak(saved=NOTHING, updating=NOTHING) == pytest.approx(lasting + FRAGMENTATION * acting_and_kept)
    evaluating = footprint(config, replace(needs, saved=NOTHING), 300 * MB, each_env=50 * MB, evaluation_envs=100)
    assert evaluating.peak(64, 1000) == pytest.approx(lasting + 100 * 50 * MB + FRAGMENTATION * 100 * 2 * MB)


def test_rollouts_that_wait_and_a_phase_of_ppg_are_counted():
    fresh = footprint(FIXED, replace(HUNGRY, updating=NOTHING)).peak(128, 32)
    policy = replace(FIXED, algorithm="ppo", staleness=3)
    rollout = 128 * 64 * 0.1 * MB
    waiting = footprint(policy, replace(HUNGRY, updating=NOTHING)).peak(128, 32) - fresh
    assert waiting == pytest.approx(4 * rollout * (1 + SAVED_COPIES))
    ppg = replace(FIXED, algorithm="ppg", advantage_norm="batch", phase_env_steps=10**6)
    phase = footprint(ppg, replace(HUNGRY, updating=NOTHING, lasting=per_sample(0.0, per_row=0.01))).peak(128, 32)
    assert phase - fresh == pytest.approx(10**6 * 0.01 * MB)


def test_what_goes_through_the_network_without_being_trained_on_is_counted():
    needs = replace(NO_NEEDS, acting=per_sample(1.0))
    fresh, stale = replace(FIXED, algorithm="ppo"), replace(FIXED, algorithm="ppo", staleness=1)
    ppg = replace(FIXED, algorithm="ppg", advantage_norm="batch", phase_env_steps=300)
    peaks = [footprint(config, needs).peak(2, 1000) for config in (fresh, stale, ppg)]
    assert peaks[1] - peaks[0] == pytest.approx(FRAGMENTATION * 2 * 64 * MB)
    assert peaks[2] - peaks[0] == pytest.approx(FRAGMENTATION * 300 * MB)
    in_parts = footprint(ppg, needs).peak(2, 100) - footprint(fresh, needs).peak(2, 100)
    assert in_parts == pytest.approx(FRAGMENTATION * 100 * MB)


def test_envs_that_may_die_have_a_checkpoint_kept_in_memory():
    saved = replace(NO_NEEDS, saved=Growth([(0.0, 10 * MB)], 0.0))
    spare = footprint(replace(FIXED, async_envs=True), saved).peak(128, 32) - footprint(FIXED, saved).peak(128, 32)
    assert spare == saved.saved.at(32, 128 * 64) > 0


def test_what_fits_is_left_as_it_was_asked_for():
    plan = plan_memory(footprint(), 128, limit=10_000 * MB)
    assert (plan.micro_batch_size, plan.longest_horizon, plan.asked_mb) == (1024, 128, None)
    assert plan.limit_mb == 10_000
    assert plan_memory(footprint(), 128, limit=None).longest_horizon == 128


def test_micro_batches_give_way_before_the_horizon_does():
    asked = footprint().peak(128, 1024)
    plan = plan_memory(footprint(), 128, limit=asked - 1)
    assert (plan.micro_batch_size, plan.longest_horizon) == (512, 128)
    assert plan.asked_mb == pytest.approx(asked / MB)
    tighter = plan_memory(footprint(), 128, limit=footprint().peak(128, 64))
    assert (tighter.micro_batch_size, tighter.longest_horizon) == (64, 128)


def test_micro_batches_are_halved_from_what_is_used_at_once():
    small = replace(ADAPTIVE, minibatch_size=200)
    plan = plan_memory(footprint(small), 128, limit=footprint(small).peak(128, 199))
    assert plan.micro_batch_size == 100


def test_then_the_longest_horizon_does_as_far_as_it_must():
    limit = footprint().peak(80, SMALLEST_MICRO_BATCH)
    plan = plan_memory(footprint(), 128, limit)
    assert (plan.micro_batch_size, plan.longest_horizon) == (SMALLEST_MICRO_BATCH, 80)
    assert plan.predicted_mb * MB <= limit
    assert plan_memory(footprint(), 128, limit - 1).longest_horizon == 79


def test_a_horizon_that_was_asked_for_as_such_is_refused_rather_than_changed():
    limit = footprint(FIXED).peak(80, SMALLEST_MICRO_BATCH)
    for config, option in [(FIXED, "horizon"), (replace(FIXED, scaler="ramp"), "ramp_horizons")]:
        with pytest.raises(OutOfMemoryError) as caught:
            plan_memory(footprint(config), 128, limit)
        (line,) = str(caught.value).splitlines()
        assert line.startswith("horizon 128 with 64 envs takes about ")
        assert f"lower {option} or num_envs (a horizon of 80 fits) or raise memory_limit" in line
        assert f"limit is {limit / MB:,.0f} MB" in line


def test_an_adaptive_run_whose_shortest_horizon_cannot_fit_is_refused():
    with pytest.raises(OutOfMemoryError, match="min_horizon 16 with 64 envs"):
        plan_memory(footprint(), 128, limit=footprint().peak(15, SMALLEST_MICRO_BATCH))


def test_the_way_out_names_what_else_is_large():
    stale = replace(FIXED, algorithm="ppo", staleness=9)
    with pytest.raises(OutOfMemoryError, match="lower horizon or num_envs or staleness or raise memory_limit"):
        plan_memory(footprint(stale), 128, limit=1.0)


def test_a_plan_is_said_in_one_line_with_its_numbers():
    plan = MemoryPlan(1024, 128, 1240.4, 18000.0)
    assert describe(plan, ADAPTIVE) == "memory: about 1,240 MB at horizon 128, limit 18,000 MB"
    assert describe(replace(plan, limit_mb=None), ADAPTIVE) == "memory: about 1,240 MB at horizon 128"
    smaller = MemoryPlan(64, 96, 1750.0, 1800.0, 2300.0)
    assert describe(smaller, ADAPTIVE) == (
        "memory: about 1,750 MB at horizon 96, limit 1,800 MB; it would take 2,300 MB, so micro_batch_size is 64 "
        "instead of 1,024 and max_horizon is 96 instead of 128"
    )
    halved = describe(replace(smaller, longest_horizon=128), ADAPTIVE)
    assert halved.endswith("so micro_batch_size is 64 instead of 1,024")


def test_where_nothing_can_be_predicted_a_limit_is_not_ignored_in_silence():
    assert describe(MemoryPlan(1024, 128), ADAPTIVE) is None
    assert "not kept" in describe(MemoryPlan(1024, 128), replace(ADAPTIVE, memory_limit=100.0))


def test_the_limit_is_what_was_asked_for_or_most_of_what_is_free():
    assert memory_limit(ADAPTIVE, resident=1000, free=9000) == 9000
    assert memory_limit(ADAPTIVE, resident=1000, free=None) is None
    assert memory_limit(replace(ADAPTIVE, memory_limit=500.0), resident=1000, free=9000) == 500 * MB


@pytest.mark.parametrize("limit", [0, -1.0, "much"])
def test_a_limit_is_a_positive_number(limit):
    with pytest.raises(ConfigError, match="memory_limit must be"):
        replace(ADAPTIVE, memory_limit=limit)


def test_a_plan_survives_json():
    plan = MemoryPlan(64, 96, 1750.5, None, 2300.0)
    assert MemoryPlan(**json.loads(json.dumps(vars(plan)))) == plan
