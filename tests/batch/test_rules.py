"""The batch-size rules against their published table and against one another, at a moment of a run, and as printed."""

import subprocess
import sys
from dataclasses import astuple, replace

import pytest
from hypothesis import given, strategies as st

from swell.batch.rules import (
    DEFAULT_RULES,
    BatchRules,
    BatchSizes,
    Hyperparameters,
    adjusted,
    batch_rules,
    reference_batch,
    scale_report,
    scaled_advantage_decay,
    scaled_betas,
    scaled_learning_rate,
    scaled_proximal_decay,
)
from swell.config.run_config import RunConfig
from swell.presets import make_config, preset_config

pytestmark = pytest.mark.portable

ALL_RULES = (*DEFAULT_RULES, "betas")
FIELDS = {
    "learning-rate": "learning_rate",
    "betas": "adam_betas",
    "proximal": "proximal_decay",
    "advantages": "advantage_decay",
    "phase": "phase_iterations",
}
TUNED = Hyperparameters(5e-4, (0.9, 0.999), 8 / 9, 0.0, 32)
REFERENCE = BatchSizes(iteration=65536, optimization=8192)
TABLE = [
    (1, 8192, 65536, 5e-4, 0.888889, 0.0, 32, 0.9, 0.999),
    (4, 2048, 16384, 2.5e-4, 0.969697, 0.6, 128, 0.974004, 0.999750),
    (16, 512, 4096, 1.25e-4, 0.992248, 0.882353, 512, 0.993437, 0.999937),
    (64, 128, 1024, 6.25e-5, 0.998051, 0.969231, 2048, 0.998355, 0.999984),
    (256, 32, 256, 3.125e-5, 0.999512, 0.992218, 8192, 0.999589, 0.999996),
]
SIZES = st.floats(1, 1e6)
DIVISORS = st.floats(1 / 256, 256)
DECAYS = st.floats(0, 0.999)


def divided(divisor):
    return BatchSizes(REFERENCE.iteration / divisor, REFERENCE.optimization / divisor)


def flat(tuned):
    return [tuned.learning_rate, *tuned.adam_betas, *astuple(tuned)[2:]]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"c={row[0]}")
def test_the_published_table_follows_from_the_rules(row):
    _, optimization, iteration, learning_rate, proximal, advantage, phase, beta1, beta2 = row
    result = adjusted(TUNED, REFERENCE, BatchSizes(iteration, optimization), ALL_RULES)
    assert result.learning_rate == pytest.approx(learning_rate)
    assert result.proximal_decay == pytest.approx(proximal, abs=5e-7)
    assert result.advantage_decay == pytest.approx(advantage, abs=5e-7)
    assert result.phase_iterations == pytest.approx(phase)
    assert result.adam_betas == pytest.approx((beta1, beta2), abs=5e-7)


@given(SIZES, SIZES)
def test_the_rules_hold_amounts_of_env_steps_constant(iteration, optimization):
    result = adjusted(TUNED, REFERENCE, BatchSizes(iteration, optimization))
    assert result.proximal_decay == pytest.approx(65536 / (65536 + optimization))
    span = 65536 / iteration
    assert result.advantage_decay == pytest.approx(max(0.0, (span - 1) / (span + 1)), abs=1e-12)
    assert result.learning_rate == pytest.approx(5e-4 * (optimization / 8192) ** 0.5)
    assert result.phase_iterations == pytest.approx(2_097_152 / iteration)


@given(DECAYS, DIVISORS)
def test_the_centre_of_mass_of_the_proximal_average_is_multiplied(decay, divisor):
    mass = 1 / (1 - scaled_proximal_decay(decay, divisor)) - 1
    assert mass == pytest.approx(divisor * (1 / (1 - decay) - 1), rel=1e-9, abs=1e-12)


@given(DECAYS, DIVISORS)
def test_the_span_of_the_advantages_is_multiplied_but_not_below_one_rollout(decay, divisor):
    span = 2 / (1 - scaled_advantage_decay(decay, divisor)) - 1
    assert span == pytest.approx(max(1.0, divisor * (2 / (1 - decay) - 1)), rel=1e-9)


@given(DECAYS, DIVISORS, DIVISORS)
def test_two_changes_of_the_batch_make_one(decay, first, second):
    both = first * second
    assert scaled_learning_rate(scaled_learning_rate(0.1, first), second) == pytest.approx(
        scaled_learning_rate(0.1, both)
    )
    assert scaled_betas(scaled_betas((0.9, 0.999), first), second) == pytest.approx(scaled_betas((0.9, 0.999), both))
    assert scaled_proximal_decay(scaled_proximal_decay(decay, first), second) == pytest.approx(
        scaled_proximal_decay(decay, both)
    )


@given(DECAYS, st.floats(1, 256), DIVISORS)
def test_two_changes_of_the_span_make_one_while_the_first_does_not_reach_its_bound(decay, first, second):
    step_by_step = scaled_advantage_decay(scaled_advantage_decay(decay, first), second)
    assert step_by_step == pytest.approx(scaled_advantage_decay(decay, first * second), abs=1e-9)


def test_a_span_that_reached_its_bound_does_not_come_back():
    assert scaled_advantage_decay(0.6, 1 / 8) == 0.0
    assert scaled_advantage_decay(scaled_advantage_decay(0.6, 1 / 8), 8) == pytest.approx(7 / 9)


@given(st.floats(1, 256))
def test_there_and_back_changes_nothing(divisor):
    there = adjusted(TUNED, REFERENCE, divided(divisor), ALL_RULES)
    back = adjusted(there, divided(divisor), REFERENCE, ALL_RULES)
    assert flat(back) == pytest.approx(flat(TUNED), abs=1e-9)


def test_the_reference_batch_changes_nothing():
    tuned = Hyperparameters(1e-3, (0.9, 0.99), 0.75, 0.5, 16)
    assert flat(adjusted(tuned, REFERENCE, REFERENCE, ALL_RULES)) == pytest.approx(flat(tuned), rel=1e-15)


@pytest.mark.parametrize("rule", ALL_RULES)
def test_a_single_rule_leaves_the_other_numbers_alone(rule):
    result = adjusted(TUNED, REFERENCE, divided(4), (rule,))
    field = FIELDS[rule]
    assert getattr(result, field) != getattr(TUNED, field)
    assert replace(result, **{field: getattr(TUNED, field)}) == TUNED
    assert getattr(result, field) == getattr(adjusted(TUNED, REFERENCE, divided(4), ALL_RULES), field)


def test_no_rule_changes_nothing_and_the_betas_are_left_alone_unless_asked_for():
    assert adjusted(TUNED, REFERENCE, divided(4), ()) == TUNED
    assert adjusted(TUNED, REFERENCE, divided(4)).adam_betas == TUNED.adam_betas


def test_each_rule_follows_its_own_batch():
    longer = adjusted(TUNED, REFERENCE, BatchSizes(REFERENCE.iteration / 4, REFERENCE.optimization), ALL_RULES)
    finer = adjusted(TUNED, REFERENCE, BatchSizes(REFERENCE.iteration, REFERENCE.optimization / 4), ALL_RULES)
    changed = [
        {rule for rule, name in FIELDS.items() if getattr(result, name) != pytest.approx(getattr(TUNED, name))}
        for result in (longer, finer)
    ]
    assert changed == [{"advantages", "phase"}, {"learning-rate", "betas", "proximal"}]


LIVELY = Hyperparameters(1e-3, (0.9, 0.999), 0.8, 0.5, 32.0)
"""Tuned numbers of which every rule changes one."""
SMALL = BatchSizes(4096, 1024)
QUARTER = BatchSizes(1024, 256)


def rules_of(config):
    return batch_rules(config, reference_batch(config))


def test_without_rules_the_batch_does_not_matter():
    assert BatchRules(LIVELY, SMALL, (), False).at(QUARTER, 0.7) == LIVELY


@pytest.mark.parametrize("rules", [ALL_RULES, *((rule,) for rule in ALL_RULES)])
def test_the_rules_that_are_on_carry_the_numbers_to_the_batch(rules):
    now = BatchRules(LIVELY, SMALL, rules, False).at(QUARTER, 0.7)
    assert now == adjusted(LIVELY, SMALL, QUARTER, rules) != LIVELY


def test_at_the_reference_batch_the_rules_change_nothing():
    now = BatchRules(LIVELY, SMALL, ALL_RULES, False).at(SMALL, 0.0)
    assert now.adam_betas == pytest.approx(LIVELY.adam_betas)
    assert vars(replace(now, adam_betas=0)) == pytest.approx(vars(replace(LIVELY, adam_betas=0)))


def test_annealing_lowers_the_adjusted_learning_rate_and_nothing_else():
    plain, annealed = (BatchRules(LIVELY, SMALL, ALL_RULES, anneal).at(QUARTER, 0.25) for anneal in (False, True))
    assert annealed.learning_rate == pytest.approx(0.75 * 1e-3 / 2.0)
    assert {**vars(annealed), "learning_rate": plain.learning_rate} == vars(plain)


def test_the_reference_batch_is_the_usual_rollout_unless_it_is_said():
    sizes = {"num_envs": 8, "horizon": 32, "minibatch_rule": "count", "minibatches": 4}
    usual = RunConfig("env", algorithm="ppg", phase_env_steps=1024, **sizes)
    numbers = rules_of(usual)
    assert (numbers.reference.iteration, numbers.reference.optimization) == (256, 64)
    assert numbers.tuned.phase_iterations == 4.0
    said = rules_of(make_config("env", preset="ppg", reference_batch=512, minibatches=8))
    assert (said.reference.iteration, said.reference.optimization) == (512, 64)
    by_size = rules_of(RunConfig("env", num_envs=8, horizon=32, minibatch_rule="size", minibatch_size=100))
    assert by_size.reference.optimization == 256 / 3


def test_without_invariance_only_phases_follow_the_batch():
    assert rules_of(RunConfig("env")).rules == ("phase",)
    chosen = rules_of(RunConfig("env", invariance="on", invariance_rules=("betas",)))
    assert chosen.rules == ("betas",)


def row(report, label):
    (line,) = [line for line in report.splitlines() if line.startswith(label)]
    return line.removeprefix(label).split()


def test_the_published_numbers_come_out_at_a_sixteenth_of_the_batch():
    report = scale_report(preset_config("ppg-ewma", "procgen/coinrun"), 65_536, 4096)
    assert row(report, "transitions per gradient step") == ["8192", "512"]
    assert row(report, "learning rate") == ["0.0005", "0.000125"]
    assert row(report, "decay of the averaged policy") == ["0.888889", "0.992248"]
    assert row(report, "decay of the advantage moments") == ["0", "0.882353"]
    assert row(report, "Adam betas (optional)") == ["0.900000,", "0.999000", "0.993437,", "0.999937"]


def test_a_phase_keeps_its_env_steps():
    config = preset_config("ppg", "procgen/coinrun")
    batch = config.num_envs * config.horizon
    report = scale_report(config, batch, batch // 4)
    assert row(report, f"rollouts per phase ({config.phase_env_steps:,} env steps)") == ["32", "128"]


def test_only_what_a_learner_has_is_listed():
    report = scale_report(preset_config("classic", "CartPole-v1"), 1024, 256)
    assert "decay" not in report and "phase" not in report
    assert "--reference-batch 1024 --invariance on" in report


def test_several_epochs_are_pointed_out():
    assert "the rules hold for one epoch; ppo-mujoco makes 10" in scale_report(
        preset_config("ppo-mujoco", "HalfCheetah-v5"), 2048, 512
    )


@pytest.mark.parametrize(("batch", "line"), [("0", "from_batch must be at least 1, got 0")])
def test_a_batch_of_nothing_is_refused(batch, line):
    command = [sys.executable, "-m", "swell", "scale", "--from-batch", batch, "--to-batch", "64"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 2
    assert finished.stderr.strip() == f"swell: {line}"
