"""The numbers of an update: as tuned at the reference batch, carried by the rules that are on, annealed last."""

from dataclasses import replace

import pytest
from swell.batch.hyperparameters import Hyperparameters, hyperparameters

from swell.batch.rules import BatchSizes, Tuned, adjusted
from swell.config.run_config import RunConfig
from swell.presets import make_config

pytestmark = pytest.mark.portable

TUNED = Tuned(1e-3, (0.9, 0.999), 0.8, 0.5, 32.0)
REFERENCE = BatchSizes(4096, 1024)
QUARTER = BatchSizes(1024, 256)
RULES = ("learning-rate", "betas", "proximal", "advantages", "phase")


def test_without_rules_the_batch_does_not_matter():
    assert Hyperparameters(TUNED, REFERENCE, (), False).at(QUARTER, 0.7) == TUNED


@pytest.mark.parametrize("rules", [RULES, *((rule,) for rule in RULES)])
def test_the_rules_that_are_on_carry_the_numbers_to_the_batch(rules):
    now = Hyperparameters(TUNED, REFERENCE, rules, False).at(QUARTER, 0.7)
    assert now == adjusted(TUNED, REFERENCE, QUARTER, rules) != TUNED


def test_at_the_reference_batch_the_rules_change_nothing():
    now = Hyperparameters(TUNED, REFERENCE, RULES, False).at(REFERENCE, 0.0)
    assert now.adam_betas == pytest.approx(TUNED.adam_betas)
    assert vars(replace(now, adam_betas=0)) == pytest.approx(vars(replace(TUNED, adam_betas=0)))


def test_annealing_lowers_the_adjusted_learning_rate_and_nothing_else():
    plain, annealed = (Hyperparameters(TUNED, REFERENCE, RULES, anneal).at(QUARTER, 0.25) for anneal in (False, True))
    assert annealed.learning_rate == pytest.approx(0.75 * 1e-3 / 2.0)
    assert {**vars(annealed), "learning_rate": plain.learning_rate} == vars(plain)


def test_the_reference_batch_is_the_usual_rollout_unless_it_is_said():
    usual = RunConfig("env", num_envs=8, horizon=32, minibatch_rule="count", minibatches=4, phase_env_steps=1024)
    numbers = hyperparameters(usual)
    assert (numbers.reference.iteration, numbers.reference.optimization) == (256, 64)
    assert numbers.tuned.phase_iterations == 4.0
    said = hyperparameters(make_config("env", preset="ppg", reference_batch=512, minibatches=8))
    assert (said.reference.iteration, said.reference.optimization) == (512, 64)
    by_size = hyperparameters(RunConfig("env", num_envs=8, horizon=32, minibatch_rule="size", minibatch_size=100))
    assert by_size.reference.optimization == 256 / 3


def test_without_invariance_only_phases_follow_the_batch():
    assert hyperparameters(RunConfig("env")).rules == ("phase",)
    chosen = hyperparameters(RunConfig("env", invariance="on", invariance_rules=("betas",)))
    assert chosen.rules == ("betas",)
