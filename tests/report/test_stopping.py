"""Runs read at some moment, the fixed horizons that they are measured against, and what the report makes of both."""

import csv
import json

import numpy as np
import pytest
from synthetic_runs import write_bench, write_run
from test_write import page_of, sections, text_of

from swell.report.fixed_horizons import Comparison, comparisons, of_one_length
from swell.report.records import read_runs
from swell.report.regret import regrets
from swell.report.stopping import (
    ENOUGH_EVALUATIONS,
    costs_of,
    scores_at_the_end,
    stopped_after_equal_time,
    stopped_after_share,
)
from swell.report.write import write_numbers

ENVS = ("Acrobot-v1", "CartPole-v1")


def labels_of(records):
    return sorted({record.label for record in records})


def rows_of(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def write_sides(root, **options):
    """Four runs of each side; the shorter the horizon the better, and the slower."""
    for label, score, slowness in (
        ("fixed:8", 100, 4),
        ("fixed:32", 60, 1),
        ("fixed:128", 20, 0.5),
        ("adaptive", 90, 1),
    ):
        fixed = {"scaler": "fixed", "horizon": int(label[6:])} if label != "adaptive" else {}
        for env in ENVS:
            for seed in (1, 2, 3, 4):
                settings = {"label": label, "env": env, "seed": seed, "score": score + seed, "slowness": slowness}
                steps = round(1000 * slowness)
                write_run(root / env / label / str(seed), **settings, gradient_steps=steps, **fixed, **options)
    return root


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    return write_sides(tmp_path_factory.mktemp("bench"))


def test_at_the_end_scores_are_those_of_the_report(sides):
    scores = scores_at_the_end(read_runs([sides]))
    assert sorted(scores["CartPole-v1"]["fixed:8"]) == [101, 102, 103, 104]
    found = regrets(scores, ["fixed:8", "fixed:32", "fixed:128"])
    assert found.mean("adaptive").value == pytest.approx((100 - 90) / (100 - 20))


def test_after_a_share_of_the_steps_runs_are_read_from_their_training_returns(sides):
    stopped = stopped_after_share(read_runs([sides]), 0.5)
    row = rows_of(sides / "CartPole-v1" / "fixed:8" / "3")[29]
    assert row["env_steps"] == 50_000
    assert row["episode_return"] in [pytest.approx(score) for score in stopped.scores["CartPole-v1"]["fixed:8"]]
    assert stopped.evaluated == frozenset()


def test_after_the_same_time_all_are_read_when_the_fastest_run_was_done_training(sides):
    stopped = stopped_after_equal_time(read_runs([sides]))
    assert stopped.seconds == {env: pytest.approx(0.5 * 37) for env in ENVS}  # of 40 s of wall-clock, 37 in phases
    slow = rows_of(sides / "CartPole-v1" / "fixed:8" / "1")
    seconds = [sum(row[f"seconds_{phase}"] for phase in ("act", "env", "update", "measure")) for row in slow]
    returns = [row.get("episode_return", np.nan) for row in slow]
    by_hand = np.interp(0.5 * 37, seconds, returns)
    assert by_hand in [pytest.approx(score) for score in stopped.scores["CartPole-v1"]["fixed:8"]]
    fast = rows_of(sides / "CartPole-v1" / "fixed:128" / "1")[-1]["episode_return"]
    assert fast in [pytest.approx(score) for score in stopped.scores["CartPole-v1"]["fixed:128"]]


def test_a_slow_variant_has_more_regret_after_the_same_time_than_after_the_same_steps(tmp_path):
    write_sides(tmp_path)
    for directory in (tmp_path / "CartPole-v1" / "adaptive").iterdir():
        rows = [{**row, "seconds_update": 5 * row["seconds_update"]} for row in rows_of(directory)]
        (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    records, fixed = read_runs([tmp_path]), ["fixed:8", "fixed:32", "fixed:128"]
    at_end, in_time = scores_at_the_end(records), stopped_after_equal_time(records).scores
    slow, usual = (regrets(in_time, fixed).of("adaptive", env).value for env in ("CartPole-v1", "Acrobot-v1"))
    assert slow > usual + 0.5
    assert regrets(at_end, fixed).of("adaptive", "CartPole-v1").value == pytest.approx(0.125)


def test_runs_with_many_evaluations_are_read_from_these_and_only_if_all_have_them(tmp_path):
    write_run(tmp_path / "a", label="a", score=100, evaluations=ENOUGH_EVALUATIONS)
    stopped = stopped_after_share(read_runs([tmp_path]), 0.25)
    assert stopped.scores == {"CartPole-v1": {"a": [pytest.approx(25)]}}  # evaluations rise evenly, unlike returns
    assert stopped.evaluated == {"CartPole-v1"}
    write_run(tmp_path / "b", label="b", score=100, evaluations=ENOUGH_EVALUATIONS - 1)
    stopped = stopped_after_share(read_runs([tmp_path]), 0.25)
    assert stopped.scores["CartPole-v1"]["a"][0] > 60 and stopped.evaluated == frozenset()


def test_runs_that_did_not_finish_are_not_read_and_an_env_waits_for_the_first_score_of_each(tmp_path):
    write_run(tmp_path / "a", label="a")
    write_run(tmp_path / "b", label="b", status="interrupted", slowness=0.1)
    records = read_runs([tmp_path])
    assert stopped_after_equal_time(records).seconds == {"CartPole-v1": pytest.approx(37)}
    assert list(stopped_after_share(records, 1.0).scores["CartPole-v1"]) == ["a"]
    assert stopped_after_share(records, 0.01).scores == {}  # its first episode ends in the third of sixty rollouts


def test_costs_are_means_of_training_time_and_gradient_steps(sides):
    costs = costs_of(read_runs([sides]), "CartPole-v1")
    assert (costs["fixed:8"].seconds, costs["fixed:8"].gradient_steps) == (pytest.approx(4 * 37), 4000)
    assert (costs["adaptive"].seconds, costs["adaptive"].gradient_steps) == (pytest.approx(37), 1000)


def test_fixed_horizons_are_those_with_one_horizon_in_all_runs(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80, "fixed:64": 80}, seeds=2)
    for seed, horizon in ((1, 23), (2, 29)):
        write_run(tmp_path / f"m{seed}", label="matched-updates", scaler="fixed", horizon=horizon, seed=seed)
    records = read_runs([tmp_path])
    assert comparisons(records, labels_of(records)) == [
        Comparison(("fixed:16", "fixed:64"), ("adaptive", "matched-updates"))
    ]


def test_each_variant_is_measured_against_the_fixed_horizons_whose_settings_are_nearest(tmp_path):
    for rate, name in ((0.1, "low"), (0.9, "high")):
        for horizon in (16, 64):
            label = f"{name} {horizon}"
            write_run(tmp_path / label, label=label, scaler="fixed", horizon=horizon, learning_rate=rate)
        write_run(tmp_path / f"{name} moving", label=f"{name} moving", learning_rate=rate, smoothing=0.5, epochs=3)
    write_run(tmp_path / "lonely", label="lonely", scaler="fixed", horizon=32, learning_rate=0.1, hidden=[8])
    records = read_runs([tmp_path])
    assert comparisons(records, labels_of(records)) == [
        Comparison(("high 16", "high 64"), ("high moving",)),
        Comparison(("low 16", "low 64"), ("lonely", "low moving")),
    ]


def test_options_that_only_move_a_horizon_or_stand_for_the_default_do_not_part_fixed_horizons(tmp_path):
    ours = {"scaler": "fixed", "num_envs": 8, "invariance": "on"}
    write_run(tmp_path / "a", label="a", horizon=16, reference_batch=None, measure_every=1, min_horizon=4, **ours)
    write_run(tmp_path / "b", label="b", horizon=64, reference_batch=128, measure_every=9, max_horizon=99, **ours)
    write_run(tmp_path / "c", label="c", horizon=32, reference_batch=256, **ours)
    records = read_runs([tmp_path])
    [found] = comparisons(records, labels_of(records))
    assert found.fixed == ("a", "b")


def test_a_variant_that_trained_for_longer_has_no_regret_there(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80, "fixed:64": 80}, envs=("CartPole-v1",), seeds=2)
    write_run(tmp_path / "longer", label="longer", total_env_steps=200_000)
    records = read_runs([tmp_path])
    [found] = comparisons(records, labels_of(records))
    assert "longer" in found.others
    assert labels_of(of_one_length(records, found)) == ["adaptive", "fixed:16", "fixed:64"]


def test_the_page_says_how_much_is_lost_against_the_best_fixed_horizon(sides):
    text = text_of(page_of(sides))
    assert "After the same env steps, fixed:8 has the smallest mean regret of the fixed ones: 0.00" in text
    assert "adaptive has 0.12" in text or "adaptive has 0.13" in text
    assert "Regret after the same time" in text and "18.5 s" in text
    assert "2 after 100%" in text


def test_regret_needs_two_fixed_horizons(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80, "ramp": 90}, seeds=4)
    assert "regret" not in sections(page_of(tmp_path))
    write_bench(tmp_path, {"fixed:64": 85}, seeds=4)
    assert "regret" in sections(page_of(tmp_path))


def test_an_env_that_says_nothing_is_in_parentheses_and_named(tmp_path):
    write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80, "fixed:64": 80}, envs=("CartPole-v1",), seeds=3)
    text = text_of(page_of(tmp_path))
    assert "After the same env steps, fixed ones cannot be told apart on CartPole-v1: nothing is said there." in text
    assert text.count("(CartPole-v1)") == 4  # in two tables of both forms
    assert "smallest mean regret of the fixed ones:" not in text


def test_the_numbers_of_regret_are_written_with_their_intervals(sides, tmp_path):
    written = list(csv.DictReader(write_numbers([sides], tmp_path / "n.csv").open()))
    rows = [row for row in written if row["section"] == "regret"]
    mean = [row for row in rows if row["caption"] == "Mean over envs" and row["variant"] == "adaptive"]
    after_steps = next(row for row in mean if row["line"] == "after the same env steps")
    assert float(after_steps["x"]) == pytest.approx(0.125) and float(after_steps["low"]) < 0.125
    over_length = [row for row in mean if row["x_axis"] == "share of the env steps"]
    assert [float(row["x"]) for row in over_length] == [10, 25, 50, 100]


def test_what_a_score_costs_is_drawn_for_variants_of_any_kind(sides, tmp_path):
    written = list(csv.DictReader(write_numbers([sides], tmp_path / "n.csv").open()))
    rows = [row for row in written if row["section"] == "cost" and row["caption"] == "CartPole-v1"]
    adaptive = {row["x_axis"]: (float(row["x"]), float(row["y"])) for row in rows if row["variant"] == "adaptive"}
    assert adaptive == {"seconds of training": (pytest.approx(37), 92.5), "gradient steps": (1000, 92.5)}
    front = [float(row["x"]) for row in rows if row["line"] == "front" and row["x_axis"] == "gradient steps"]
    assert front == [500, 1000, 4000]  # not fixed:32, which made as many gradient steps as adaptive for less
    write_bench(tmp_path, {"adaptive": 100, "ramp": 90}, seeds=2)
    assert "cost" in sections(page_of(tmp_path))
