"""The sentences on top of a report claim what the runs show, and no more."""

import pytest
from synthetic_runs import write_bench, write_run

from swell.errors import ConfigError
from swell.report.records import read_runs
from swell.report.scoring import score_runs
from swell.report.verdict import chance_of_a_sweep, enough_runs, judge, variant_labels


def verdict_on(path, about=None):
    records = read_runs([path])
    return judge(records, score_runs(records), about)


def test_a_better_variant_beats_the_other(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:64": 50})
    [finding] = verdict_on(tmp_path).findings
    assert finding.outcome == "beats"
    assert finding.sentence == "adaptive beats fixed:64 with probability 1.00 [1.00, 1.00]."


def test_a_worse_variant_loses(tmp_path):
    write_bench(tmp_path, {"adaptive": 50, "fixed:64": 100})
    verdict = verdict_on(tmp_path)
    assert verdict.findings[0].outcome == "loses"
    assert verdict.headline == "adaptive loses to fixed:64."


def test_equal_variants_are_not_distinguishable(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:64": 100}, seeds=6)
    [finding] = verdict_on(tmp_path).findings
    assert finding.outcome == "undecided"
    assert finding.sentence.startswith("adaptive is not distinguishable from fixed:64 (0.")


def test_nothing_is_claimed_from_single_runs(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:64": 50}, envs=tuple("abcdefgh"), seeds=1)
    verdict = verdict_on(tmp_path)
    assert verdict.findings[0].outcome == "too few"
    assert "too few runs to tell" in verdict.findings[0].sentence


def test_a_clean_sweep_of_three_against_three_is_no_evidence(tmp_path):
    assert chance_of_a_sweep([(3, 3)]) == pytest.approx(0.1)
    assert not enough_runs({"a": [1, 2, 3]}, {"a": [4, 5, 6]})
    assert enough_runs({"a": [1, 2, 3, 4]}, {"a": [5, 6, 7, 8]})
    write_bench(tmp_path, {"adaptive": 100, "fixed:64": 50}, envs=("CartPole-v1",), seeds=3)
    assert verdict_on(tmp_path).findings[0].outcome == "too few"


def test_the_main_variant_is_the_adaptive_variant_unless_another_is_asked_for(tmp_path):
    write_bench(tmp_path, {"fixed:16": 50, "swell": 100, "fixed:128": 60}, seeds=2)
    records = read_runs([tmp_path])
    assert variant_labels(records) == ["swell", "fixed:16", "fixed:128"]
    assert variant_labels(records, "fixed:16") == ["fixed:16", "fixed:128", "swell"]
    with pytest.raises(ConfigError, match="no run has the label 'fixed:8'; there are 'fixed:16', 'fixed:128', 'swell'"):
        variant_labels(records, "fixed:8")


def test_different_numbers_of_gradient_steps_are_noted(tmp_path):
    write_bench(tmp_path, {"adaptive": 100}, gradient_steps=1000)
    write_bench(tmp_path, {"fixed:16": 90}, gradient_steps=1900)
    write_bench(tmp_path, {"fixed:32": 90}, gradient_steps=1040)
    sixteen, thirty_two = verdict_on(tmp_path).findings
    assert sixteen.notes == ("fixed:16 made 1.9 × as many gradient steps: it is not a comparison of batches alone.",)
    assert thirty_two.notes == ()


def test_different_lengths_are_noted(tmp_path):
    write_bench(tmp_path, {"adaptive": 100}, total_env_steps=50_000)
    write_bench(tmp_path, {"fixed:16": 90})
    assert "trained for 2.0 × as many env steps" in verdict_on(tmp_path).findings[0].notes[0]


def test_few_seeds_are_a_caution(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 90}, seeds=4)
    assert any("Fewer than 5 finished runs per env" in caution for caution in verdict_on(tmp_path).cautions)
    write_bench(tmp_path / "more", {"adaptive": 100, "fixed:16": 90}, seeds=5)
    assert verdict_on(tmp_path / "more").cautions == ()


def test_runs_that_did_not_finish_are_a_caution(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 90})
    write_run(tmp_path / "runs" / "bad", label="fixed:16", scaler="fixed", seed=9, status="diverged")
    [lost, uneven] = verdict_on(tmp_path).cautions
    assert lost.startswith("1 of 11 runs of fixed:16 did not finish (1 diverged) and has no score here.")
    assert uneven.startswith("Variants differ in their number of runs")


def test_many_comparisons_are_said_to_be_uncorrected(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 90, "fixed:32": 90})
    assert "not corrected for the 2 comparisons" in verdict_on(tmp_path).cautions[-1]


def test_the_same_seed_twice_is_a_caution(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 90})
    write_run(tmp_path / "copy", label="fixed:16", scaler="fixed", seed=1)
    assert any("same seed appears more than once" in caution for caution in verdict_on(tmp_path).cautions)


def test_runs_without_labels_that_differ_are_a_caution(tmp_path):
    write_run(tmp_path / "a", seed=1)
    write_run(tmp_path / "b", seed=2, learning_rate=0.1)
    [caution] = verdict_on(tmp_path).cautions
    assert caution.startswith("Runs called pqn adaptive differ in learning_rate.")


def test_two_backends_under_one_given_label_are_a_caution(tmp_path):
    write_run(tmp_path / "a", seed=1, label="mine", backend="auto")
    write_run(tmp_path / "b", seed=2, label="mine", backend="compiled")
    [caution] = verdict_on(tmp_path).cautions
    assert caution.startswith("Runs called mine differ in backend.")


def test_variants_without_a_common_env_are_not_compared(tmp_path):
    write_bench(tmp_path, {"adaptive": 100}, envs=("a",))
    write_bench(tmp_path, {"fixed:16": 90}, envs=("b",))
    verdict = verdict_on(tmp_path)
    assert verdict.findings[0].outcome == "apart"
    assert verdict.headline == "adaptive shares no finished env with fixed:16."


def test_one_run_and_one_variant_are_nothing_to_compare(tmp_path):
    write_run(tmp_path / "a")
    assert "reached" in verdict_on(tmp_path).headline
    write_run(tmp_path / "b", seed=2)
    headline = "One variant, pqn adaptive: nothing to compare it with. 2 finished runs on 1 env."
    assert verdict_on(tmp_path).headline == headline


def test_the_basis_names_runs_envs_seeds_score_and_scale(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 90})
    basis = verdict_on(tmp_path).basis
    assert basis.startswith("From 20 finished runs, 2 variants, 2 envs, 5 runs per variant and env.")
    assert "greedy evaluation return, min–max normalised: 0 is the worst run of any variant on that env" in basis


def test_no_finished_run_is_said_plainly(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 90}, seeds=1, status=None)
    verdict = verdict_on(tmp_path)
    assert verdict.basis == "None of 4 runs has finished with a score."
    assert verdict.findings[0].outcome == "apart"
