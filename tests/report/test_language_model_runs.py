"""Runs of language-model post-training: read like any other, and told in their own words."""

import json
import re

import numpy as np
import pytest
from language_model_runs import write_llm_run, write_llm_variants, write_rows
from synthetic_runs import write_bench, write_run
from test_write import data_of, page_of, sections, text_of

from swell.report.records import default_label, read_run, read_runs
from swell.report.scoring import score_runs
from swell.report.verdict import judge
from swell.report.words import ENV_RUN, KINDS, LANGUAGE_MODEL_RUN, common_words, kind_named

ENV_WORDS = re.compile(r"\benvs?\b|env steps|episode|\breturns?\b|horizon|gradient steps", re.IGNORECASE)
COMPLETION_WORDS = re.compile(r"completion|reward|optimizer steps|\btasks?\b", re.IGNORECASE)


def verdict_on(path):
    records = read_runs([path])
    return judge(records, score_runs(records))


def axis_titles(page):
    """Every title of an axis in the figures of a page."""
    titles = set()
    for figure in data_of(page):
        layout = figure["layout"]
        titles |= {layout[axis]["title"]["text"] for axis in ("xaxis", "yaxis") if "title" in layout.get(axis, {})}
        titles |= set(layout.get("axis_titles", {}).values())
    return titles


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    root = tmp_path_factory.mktemp("llm")
    return page_of(write_llm_variants(root, {"ess adaptive": 0.7, "dapo fixed": 0.5}))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    root = tmp_path_factory.mktemp("mixed")
    write_llm_variants(root / "llm", {"ess adaptive": 0.7, "fixed:16": 0.5})
    write_bench(root / "env", {"adaptive": 100, "fixed:16": 80}, envs=("CartPole-v1",))
    return page_of(root)


def test_a_finished_run_is_read_completely(tmp_path):
    record = read_run(write_llm_run(tmp_path / "run", reward=0.6, algorithm="ess", seed=3))
    assert (record.env, record.label, record.seed, record.status) == ("addition", "ess adaptive", 3, "done")
    assert (record.clock, record.gradient_steps, record.wall_seconds, record.speed) == (12_800, 100, 90, 140)
    assert record.score("evaluation_score") == 0.6
    assert record.score("training_score") == record.log.score[-1]
    assert record.log.evaluation_clock.tolist() == [6_400, 12_800]
    assert record.log.evaluation_scores.tolist() == [0.3, 0.6]
    assert record.log.seconds == {"generate": 50, "update": 30, "measure": 4}
    assert record.log.signal == "kl_divergence" and record.log.readings.size == 25
    assert record.log.ess.size == 50 and (record.log.ess <= 1).all()
    assert record.max_batch == 256 and record.problem == ""


def test_the_batch_is_drawn_as_it_was_to_the_last_generation(tmp_path):
    directory = write_llm_run(tmp_path / "run")
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    rows[-1]["batch"] = 16  # cut to the run's total
    write_rows(directory / "metrics.jsonl", rows)
    assert read_run(directory).log.batch.tolist() == [row["batch"] for row in rows]


def test_the_corrected_reading_is_the_one_that_counts(tmp_path):
    directory = write_llm_run(tmp_path / "run")
    rows = [{"completions": 8, "reading": 0.1, "raw_reading": 0.3}, {"completions": 16, "raw_reading": 0.2}]
    write_rows(directory / "metrics.jsonl", rows)
    assert read_run(directory).log.readings.tolist() == [0.1]


def test_names_of_the_other_kind_mean_nothing(tmp_path):
    directory = write_llm_run(tmp_path / "run")
    write_rows(directory / "metrics.jsonl", [{"env_steps": 8, "episode_return": 1.0}])
    assert read_run(directory).log.clock.size == 0
    directory = write_run(tmp_path / "env run")
    write_rows(directory / "metrics.jsonl", [{"completions": 8, "reward": 1.0}])
    assert read_run(directory).log.clock.size == 0


def test_labels_say_what_sets_the_batch():
    options = {"algorithm": "dapo", "scaler": "fixed", "generation_batch_size": 64}
    assert default_label(options, LANGUAGE_MODEL_RUN) == "dapo fixed:64"
    assert default_label({"algorithm": "ess", "scaler": "none"}, LANGUAGE_MODEL_RUN) == "ess none"


@pytest.mark.parametrize("name", [None, "env", "something else", 3, ["llm"], {"llm": 1}])
def test_what_is_no_known_kind_is_a_run_in_an_env(name):
    assert kind_named(name) is ENV_RUN


def test_words_of_both_kinds_are_neither_alone():
    assert common_words([]) is common_words([ENV_RUN]) is ENV_RUN.words
    assert common_words([LANGUAGE_MODEL_RUN, LANGUAGE_MODEL_RUN]) is LANGUAGE_MODEL_RUN.words
    assert common_words(KINDS).clock == "env steps or completions"


@pytest.mark.parametrize("option", [None, "256", ["256"], True, {"a": 1}])
def test_a_largest_batch_that_is_no_number_is_not_known(tmp_path, option):
    assert read_run(write_llm_run(tmp_path / "llm", max_generation_batch_size=option)).max_batch is None
    assert read_run(write_run(tmp_path / "env", scaler="ramp", ramp_horizons=option)).max_batch is None


def test_a_comparison_has_every_section_that_it_has_data_for(comparison):
    assert sections(comparison) == [
        *("verdict", "aggregate", "profile", "curves", "batch", "ess", "signal", "probability", "improvement"),
        *("cost", "gradient-steps", "time", "config", "runs", "versions"),
    ]


def test_fixed_generations_are_a_yardstick_of_regret_in_the_words_of_language_models(tmp_path):
    for label, reward in (("fixed:32", 0.3), ("fixed:256", 0.8), ("adaptive", 0.6)):
        options = {"scaler": "fixed", "generation_batch_size": int(label[6:])} if label != "adaptive" else {}
        for seed in (1, 2, 3, 4):
            write_llm_run(tmp_path / label / str(seed), reward=reward + seed / 100, label=label, seed=seed, **options)
    page = page_of(tmp_path)
    assert "regret" in sections(page)
    assert "After the same completions, fixed:256 has the smallest mean regret of the fixed ones: 0.00" in text_of(page)
    assert "adaptive has 0.40" in text_of(page)
    assert ENV_WORDS.findall(text_of(page)) == []


def test_a_page_about_language_models_says_nothing_of_envs(comparison):
    assert ENV_WORDS.findall(text_of(comparison)) == []
    assert ENV_WORDS.findall(" ".join(axis_titles(comparison))) == []
    assert ENV_WORDS.findall(json.dumps([figure["entries"] for figure in data_of(comparison)])) == []
    for words in ("completions", "reward", "batch (completions)", "optimizer steps", "effective sample size (share)"):
        assert words in axis_titles(comparison)
    assert {"wall-clock (seconds)", "seconds per 1,000 completions", "KL divergence"} <= axis_titles(comparison)
    assert "Completions per second" in text_of(comparison) and "Improvement per task" in text_of(comparison)


def test_a_page_about_envs_says_nothing_of_completions(tmp_path):
    page = page_of(write_bench(tmp_path, {"adaptive": 100, "fixed:16": 80}))
    assert COMPLETION_WORDS.findall(text_of(page)) == []
    assert COMPLETION_WORDS.findall(" ".join(axis_titles(page))) == []
    assert {"env steps", "return", "horizon (steps per env)", "gradient steps"} <= axis_titles(page)


def test_one_run_has_a_page_of_its_own(tmp_path):
    page = page_of(write_llm_run(tmp_path / "run", reward=0.625))
    text = text_of(page)
    assert sections(page) == ["verdict", "curves", "batch", "signal", "time", "config", "versions"]
    assert ENV_WORDS.findall(text.replace(" env ", " ", 1)) == []  # the option of that name
    for words in ("Reward on fresh problems 0.625", "Completions 12,800", "Optimizer steps 100", "40 → 256"):
        assert words in text
    names = [entry["trace"].get("name") for figure in data_of(page) for entry in figure["entries"]]
    assert "dapo adaptive, reward on fresh problems" in names


def test_only_runs_with_an_effective_sample_size_are_in_its_figure(comparison, tmp_path):
    [figure] = [
        f for f in data_of(comparison) if f["layout"].get("yaxis", {}).get("title", {}).get("text", "")[:3] == "eff"
    ]
    assert [entry["trace"]["name"] for entry in figure["entries"]] == ["ess adaptive, 5 runs"]
    without = page_of(write_llm_variants(tmp_path, {"dapo adaptive": 0.7, "dapo fixed": 0.5}, seeds=2))
    assert "ess" not in sections(without) and "Effective sample size" not in text_of(without)


def test_env_runs_of_the_ess_objective_have_the_figure_too(tmp_path):
    directory = write_run(tmp_path / "run", algorithm="ess")
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    write_rows(directory / "metrics.jsonl", [{**row, "effective_sample_size": 0.9} for row in rows])
    assert "ess" in sections(page_of(directory))


def test_a_better_variant_beats_the_other_on_fresh_problems(tmp_path):
    verdict = verdict_on(write_llm_variants(tmp_path, {"ess adaptive": 0.7, "dapo fixed": 0.5}))
    assert verdict.headline == "ess adaptive beats dapo fixed."
    assert verdict.findings[0].sentence == "ess adaptive beats dapo fixed with probability 1.00 [1.00, 1.00]."
    assert verdict.findings[0].notes == () and verdict.cautions == ()
    assert verdict.basis.startswith(
        "From 10 finished runs, 2 variants, 1 task, 5 runs per variant and task. The score is the mean reward on fresh "
        "problems, min–max normalised: 0 is the worst run of any variant on that task"
    )


def test_training_rewards_count_where_a_run_was_not_evaluated(tmp_path):
    write_llm_variants(tmp_path, {"ess adaptive": 0.7, "dapo fixed": 0.5})
    write_llm_run(tmp_path / "more", label="dapo fixed", scaler="fixed", seed=6, evaluated=False)
    assert "mean training reward of the last 10 % of completions" in verdict_on(tmp_path).basis


def test_different_effort_is_noted_in_the_words_of_the_kind(tmp_path):
    write_llm_variants(tmp_path, {"ess adaptive": 0.7}, updates=100)
    write_llm_variants(tmp_path, {"dapo fixed": 0.5}, updates=250, total_completions=25_600)
    assert verdict_on(tmp_path).findings[0].notes == (
        "dapo fixed made 2.5 × as many optimizer steps: it is not a comparison of batches alone.",
        "dapo fixed trained for 2.0 × as many completions: it is not a comparison at equal data.",
    )


def test_a_finished_run_without_a_reward_is_said_plainly(tmp_path):
    write_llm_variants(tmp_path, {"ess adaptive": 0.7, "dapo fixed": 0.5}, evaluated=False)
    summary = {"status": "done", "completions": 12_800}
    (tmp_path / "addition" / "dapo fixed" / "seed-1" / "summary.json").write_text(json.dumps(summary))
    assert "1 finished run of dapo fixed has no score: none was noted." in verdict_on(tmp_path).cautions


def test_in_a_mixed_folder_every_env_and_task_keeps_its_words(mixed):
    captions = re.findall(r'<figcaption><bdi>(.*?)</bdi></figcaption><div class="plot" data-figure="(\d+)">', mixed)
    figures = data_of(mixed)
    titles = {"CartPole-v1": set(), "addition": set()}
    for env, number in captions:
        layout = figures[int(number)]["layout"]
        if env in titles:
            titles[env] |= {layout["yaxis"]["title"]["text"], layout.get("axis_titles", {}).get("clock")}
    assert titles["CartPole-v1"] == {
        *("return", "horizon (steps per env)", "behavioral divergence", "env steps", "greedy evaluation return", None),
    }
    assert titles["addition"] == {
        *("reward", "batch (completions)", "effective sample size (share)", "KL divergence", "completions", None),
        "mean reward on fresh problems",
    }
    assert {"seconds per 100,000 env steps", "seconds per 1,000 completions"} <= axis_titles(mixed)


def test_in_a_mixed_folder_clocks_are_not_averaged_together(mixed):
    tables = re.findall(r"<table>.*?</table>", mixed.partition('<nav class="contents"')[0], re.S)
    env_runs, language_model_runs = map(text_of, tables)
    assert "Env steps Gradient steps" in env_runs and "fixed:16 5 5 100,000 1,000" in env_runs
    assert "Completions Optimizer steps" in language_model_runs and "fixed:16 5 5 12,800 100" in language_model_runs


def test_in_a_mixed_folder_effort_is_compared_within_a_kind(tmp_path):
    write_llm_variants(tmp_path / "llm", {"adaptive": 0.7}, updates=100)
    write_llm_variants(tmp_path / "llm", {"fixed:16": 0.5}, updates=200)
    write_bench(tmp_path / "env", {"adaptive": 100}, total_env_steps=50_000)
    write_bench(tmp_path / "env", {"fixed:16": 80})
    [finding] = verdict_on(tmp_path).findings
    assert finding.notes == (
        "fixed:16 trained for 2.0 × as many env steps: it is not a comparison at equal data.",
        "fixed:16 made 2.0 × as many optimizer steps: it is not a comparison of batches alone.",
    )


def test_a_run_that_cannot_be_read_does_not_change_the_words_of_the_others(tmp_path):
    write_llm_variants(tmp_path, {"ess adaptive": 0.7, "dapo fixed": 0.5})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"kind": "llm"')
    assert ENV_WORDS.findall(text_of(page_of(tmp_path))) == []


def test_a_damaged_log_is_read_as_far_as_it_goes(tmp_path):
    directory = write_llm_run(tmp_path / "run", lines=10, algorithm="ess")
    lines = (directory / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = b"\x00garbage\n"
    lines[6] = b'{"completions": "many", "reward": 1.0}\n'
    lines[7] = b'{"completions": 10240, "reward": NaN, "ess": "high", "batch": null, "updates": 1e999}\n'
    (directory / "metrics.jsonl").write_bytes(b"".join(lines) + b'{"completions": 1')
    (directory / "evaluations.jsonl").write_bytes(b'[]\n{"completions": 5, "mean_reward": null}\n')
    (directory / "summary.json").write_text('{"status": "done", "completions": 12800, "final_reward": NaN}')
    record = read_run(directory)
    assert record.problem == "1 damaged lines in metrics.jsonl" and record.status == "done"
    assert record.log.clock.tolist() == [1280, 2560, 3840, 5120, 7680, 10240, 11520, 12800]
    assert np.isnan(record.log.score[5]) and np.isnan(record.log.ess[5]) and np.isnan(record.log.batch[5])
    assert record.log.evaluation_clock.size == 0 and record.score("training_score") is None
    page = page_of(directory)
    assert "NaN" not in json.dumps(data_of(page)) and "nan" not in text_of(page)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "evaluations.jsonl", "summary.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"config": {}}', b'{"kind": "llm"}'])
def test_no_damaged_file_keeps_the_others_from_their_page(tmp_path, name, content):
    directory = write_llm_run(tmp_path / "run", lines=10)
    (directory / name).write_bytes(content)
    assert "verdict" in sections(page_of(tmp_path))


def test_a_reading_of_zero_is_drawn(tmp_path):
    directory = write_llm_run(tmp_path / "run")

    def reading_axis():
        [layout] = [f["layout"] for f in data_of(page_of(directory)) if "KL divergence" in json.dumps(f["layout"])]
        return layout["yaxis"].get("type")

    assert reading_axis() == "log"
    with open(directory / "metrics.jsonl", "a") as file:
        file.write('{"completions": 12801, "signal": "kl_divergence", "reading": 0.0}\n')
    assert reading_axis() is None
