"""Run directories are found and read in every state that a run can leave them in."""

import json
import os
import socket

import numpy as np
import pytest
from synthetic_runs import write_bench, write_run

from swell.errors import ConfigError
from swell.report.records import default_label, natural_key, read_run, read_runs
from swell.report.run_files import MAX_POINTS, clean_text, finite_number
from swell.report.scoring import score_runs
from swell.runs.sealed import write_sealed


def test_runs_are_found_at_any_depth_and_once(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "deep" / "er" / "b", seed=2)
    records = read_runs([tmp_path, tmp_path / "a", tmp_path / "deep"])
    assert [record.name for record in records] == ["a", "deep/er/b"]


def test_links_are_not_followed(tmp_path):
    write_run(tmp_path / "elsewhere" / "run", seed=7)
    inside = write_run(tmp_path / "here" / "run")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    (inside / "metrics.jsonl").unlink()
    (inside / "metrics.jsonl").symlink_to(tmp_path / "elsewhere" / "run" / "metrics.jsonl")
    [record] = read_runs([tmp_path / "here"])
    assert record.seed == 1
    assert record.log.clock.size == 0


def test_a_folder_without_runs_is_refused_in_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"no run in .*: a run is a folder with a config\.json"):
        read_runs([tmp_path])
    with pytest.raises(ConfigError, match="is no folder"):
        read_runs([tmp_path / "nowhere"])


def test_a_finished_run_is_read_completely(tmp_path):
    record = read_run(write_run(tmp_path / "run", score=120.0, seed=3, gradient_steps=500))
    assert (record.env, record.label, record.seed, record.status) == ("CartPole-v1", "pqn adaptive", 3, "done")
    assert record.score("evaluation_score") == 120.0
    assert (record.clock, record.gradient_steps, record.wall_seconds) == (100_000, 500, 40)
    assert (record.device, record.machine, record.threads, record.network) == ("cpu", "x86_64", "1", "mlp")
    assert record.versions["torch"] == "2.13.0+cpu"
    assert record.log.signal == "behavioral_divergence"
    assert record.log.readings.size == 12
    assert record.log.seconds == {"act": 8, "env": 5, "update": 22, "measure": 2}
    assert record.max_batch == 64 * 32


def test_the_last_horizon_is_the_planned_one(tmp_path):
    directory = write_run(tmp_path / "run")
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    planned = [rows[0]["horizon"], *(row["next_horizon"] for row in rows[:-1])]
    assert rows[-1]["horizon"] == 5
    assert read_run(directory).log.batch.tolist() == planned


def test_long_logs_are_thinned_but_keep_their_ends_and_readings(tmp_path):
    log = read_run(write_run(tmp_path / "run", lines=5000)).log
    assert 100 < log.clock.size <= MAX_POINTS
    assert log.clock[0] == 20 and log.clock[-1] == 100_000
    assert 100 < log.readings.size <= MAX_POINTS
    assert np.ptp(np.diff(log.clock)[:-2]) == 0  # evenly spaced


@pytest.mark.parametrize("status", ["done", "diverged", "failed", "interrupted"])
def test_a_run_is_what_its_summary_says(tmp_path, status):
    assert read_run(write_run(tmp_path / "run", status=status)).status == status


def test_a_run_without_a_summary_is_unfinished(tmp_path):
    assert read_run(write_run(tmp_path / "run", status=None, share_done=0.3)).status == "unfinished"


def test_the_summary_of_an_earlier_session_does_not_count(tmp_path):
    directory = write_run(tmp_path / "run")
    summary = json.loads((directory / "summary.json").read_text())
    (directory / "summary.json").write_text(json.dumps({**summary, "env_steps": 50_000}))
    assert read_run(directory).status == "unfinished"


def test_a_run_whose_process_lives_is_running(tmp_path):
    directory = write_run(tmp_path / "run", status=None)
    (directory / "run.lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")
    assert read_run(directory).status == "running"
    (directory / "run.lock").write_text(f"process {os.getpid()} on another-machine")
    assert read_run(directory).status == "unfinished"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"config": 3}', b"[" * 100_000])
def test_a_config_that_cannot_be_read_makes_an_unreadable_run(tmp_path, content):
    directory = write_run(tmp_path / "run")
    (directory / "config.json").write_bytes(content)
    record = read_run(directory)
    assert record.status == "unreadable" and "config" in record.problem


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x00\x01", b'{"status": ["done"]}'])
def test_a_summary_that_cannot_be_read_leaves_the_run_unfinished(tmp_path, content):
    directory = write_run(tmp_path / "run")
    (directory / "summary.json").write_bytes(content)
    assert read_run(directory).status == "unfinished"


def test_damaged_lines_are_left_out_and_told(tmp_path):
    directory = write_run(tmp_path / "run", lines=10)
    lines = (directory / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = b"\x00garbage\n"
    (directory / "metrics.jsonl").write_bytes(b"".join(lines) + b'{"env_steps": 1100')
    record = read_run(directory)
    assert record.log.clock.size == 9
    assert record.problem == "1 damaged lines in metrics.jsonl"


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.jsonl", "evaluations.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "directory", "20 GB"])
def test_what_is_no_plain_file_is_told_and_the_other_runs_are_read(tmp_path, name, kind):
    path = write_run(tmp_path / "odd", lines=10) / name
    if kind == "20 GB":
        os.truncate(path, 20_000_000_000)
    else:
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
    write_run(tmp_path / "whole", lines=10, seed=2)
    records = {record.name: record for record in read_runs([tmp_path])}
    assert not records["whole"].problem and records["whole"].log.clock.size == 10
    if name == "config.json" and kind == "directory":
        assert "odd" not in records  # a run is a folder with a file of that name
    elif name != "evaluations.jsonl" or kind != "20 GB":
        assert name in records["odd"].problem


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_a_sealed_file_that_was_changed_is_told(tmp_path, name):
    directory = write_run(tmp_path / "run")
    write_sealed(directory / name, json.loads((directory / name).read_text()))
    assert not read_run(directory).problem
    (directory / name).write_text((directory / name).read_text().replace('": ', '":  ', 1))
    assert read_run(directory).problem == f"{name} was changed after it was written"


def test_numbers_that_are_none_do_no_harm(tmp_path):
    directory = write_run(tmp_path / "run", lines=4)
    rows = [
        {"env_steps": 10, "episode_return": None, "horizon": 8, "reading": None, "wall_seconds": 1},
        {"env_steps": "20", "episode_return": 1.0},
        {"env_steps": 30, "episode_return": "high", "horizon": True, "wall_seconds": 0.5},
        {"env_steps": 5, "episode_return": 2.0},
        {"env_steps": 10**400},
    ]
    lines = [json.dumps(row) for row in rows] + ['{"env_steps": 40, "episode_return": NaN}', '{"env_steps": 1e999}']
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    log = read_run(directory).log
    assert log.clock.tolist() == [10, 30, 40]
    assert np.isnan(log.score).all()
    assert log.wall_seconds[1] == 1  # a clock never goes back


def test_a_run_with_nothing_but_a_config_is_read(tmp_path):
    directory = write_run(tmp_path / "run")
    for name in ("metrics.jsonl", "evaluations.jsonl", "summary.json"):
        (directory / name).unlink()
    record = read_run(directory)
    assert record.status == "unfinished" and record.clock is None


def test_the_log_of_a_benchmark_is_found_with_its_last_line(tmp_path):
    write_bench(tmp_path, {"fixed:16": 50}, envs=("ALE/Pong-v5",), seeds=1, status="failed")
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "ALE-Pong-v5_fixed-16_seed-1.log"
    log.write_text("starting\n\x1b[31mswell: environment failed\x1b[0m\n\n")
    [record] = read_runs([tmp_path])
    assert (record.console, record.last_log_line) == (log, "swell: environment failed")


def test_a_run_that_left_only_a_log_is_listed_as_failed(tmp_path):
    write_bench(tmp_path, {"fixed:16": 50}, envs=("ALE/Pong-v5",), seeds=1)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "ALE-Pong-v5_fixed-16_seed-2.log").write_text("swell: not enough memory\n")
    [_, failed] = read_runs([tmp_path])
    assert (failed.env, failed.label, failed.seed, failed.status) == ("ALE/Pong-v5", "fixed:16", 2, "failed")
    assert failed.last_log_line == "swell: not enough memory"


def test_labels_say_what_sets_the_batch():
    assert default_label({"algorithm": "pqn", "scaler": "adaptive", "horizon": 32}) == "pqn adaptive"
    assert default_label({"algorithm": "ppo", "scaler": "fixed", "horizon": 64}) == "ppo fixed:64"
    assert default_label({"algorithm": "pqn", "scaler": "ramp", "ramp_from": "x"}) == "pqn ramp-replay"


@pytest.mark.parametrize(("backend", "ending"), [("auto", ""), ("gymnasium", ""), ("envpool", " envpool")])
def test_the_label_names_another_implementation_of_the_env(backend, ending):
    config = {"algorithm": "pqn", "scaler": "adaptive", "backend": backend}
    assert default_label(config) == f"pqn adaptive{ending}"
    assert default_label({**config, "backend": "compiled"}) == "pqn adaptive compiled"


def test_a_given_label_is_kept(tmp_path):
    assert read_run(write_run(tmp_path / "run", label="mine")).label == "mine"


def test_evaluations_count_if_every_finished_run_has_one(tmp_path):
    write_run(tmp_path / "a", score=10.0)
    write_run(tmp_path / "b", score=30.0, seed=2)
    assert score_runs(read_runs([tmp_path])).raw == {"pqn adaptive": {"CartPole-v1": [10.0, 30.0]}}
    write_run(tmp_path / "c", seed=3, evaluated=False)
    scoring = score_runs(read_runs([tmp_path]))
    assert scoring.field == "training_score" and "training" in scoring.field_name


def test_only_finished_runs_have_scores(tmp_path):
    write_run(tmp_path / "a", score=10.0)
    write_run(tmp_path / "b", score=30.0, seed=2, status="diverged")
    assert score_runs(read_runs([tmp_path])).raw == {"pqn adaptive": {"CartPole-v1": [10.0]}}


def test_scores_are_between_the_worst_and_the_best_run_of_an_env(tmp_path):
    for number, score in enumerate((10.0, 20.0, 50.0)):
        write_run(tmp_path / f"{number}", score=score, seed=number, label="x" if number else "y")
    scoring = score_runs(read_runs([tmp_path]))
    assert scoring.normalized == {"y": {"CartPole-v1": [0.0]}, "x": {"CartPole-v1": [0.25, 1.0]}}
    assert not scoring.by_reference and "0 is the worst run" in scoring.explanation


def test_atari_scores_are_human_normalised(tmp_path):
    write_run(tmp_path / "a", env="ALE/Pong-v5", score=14.6)
    scoring = score_runs(read_runs([tmp_path]))
    assert scoring.scale == "human-normalised" and scoring.by_reference
    assert scoring.normalized["pqn adaptive"]["ALE/Pong-v5"] == pytest.approx([1.0])


def test_one_env_without_reference_puts_all_on_the_same_footing(tmp_path):
    write_run(tmp_path / "a", env="ALE/Pong-v5", score=14.6)
    write_run(tmp_path / "b", env="CartPole-v1", score=14.6)
    assert not score_runs(read_runs([tmp_path])).by_reference


def test_names_lose_what_would_disturb_a_page():
    assert clean_text("a\nb\x00c\u202ed\x1b[31me") == "a b c de"
    assert clean_text("\ud800") == "?"
    assert len(clean_text("x" * 9999)) == 300


def test_numbers_in_names_sort_as_numbers():
    assert sorted(["fixed:128", "fixed:16", "adaptive", "fixed:²"], key=natural_key)[:3] == [
        "adaptive",
        "fixed:16",
        "fixed:128",
    ]


@pytest.mark.parametrize("value", [None, True, "1", float("nan"), float("inf"), 10**400])
def test_what_is_no_number_is_none(value):
    assert finite_number(value) is None
