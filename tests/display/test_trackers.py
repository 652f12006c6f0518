"""Weights & Biases and trackio: what they are told, that a resumed run stays one run, and that they stop nothing."""

import json
import os
import sqlite3
import subprocess
import sys

import pytest

from swell.cli import execute, parse
from swell.display import trackers
from swell.display.trackers import TrackerSink, open_trackers, require_trackers
from swell.errors import ConfigError

SMALL = ["--steps", "600", "--num-envs", "4", "--evaluation-episodes", "1", "--path", "autograd"]


class FakeService:
    def __init__(self, fails_at=None):
        self.logged, self.finished, self.fails_at = [], 0, fails_at

    def log(self, values, env_steps):
        if env_steps == self.fails_at:
            raise ConnectionError("no route\nto host")
        self.logged.append((env_steps, values))

    def finish(self):
        self.finished += 1


def test_a_tracker_hears_every_number_over_env_steps():
    service, said = FakeService(), []
    sink = TrackerSink("Tracker", lambda: service, said.append)
    sink.write({"env_steps": 128, "horizon": 16, "loss": 0.5, "signal": "x", "reading": None})
    sink.evaluation({"env_steps": 128, "mean_return": 21.0, "returns": [21.0]})
    sink.close()
    sink.close()
    assert service.logged == [
        (128, {"batch/horizon": 16, "learning/loss": 0.5}),
        (128, {"evaluation/mean_return": 21.0}),
    ]
    assert (service.finished, said) == (1, [])


def test_a_tracker_that_fails_says_so_once_and_hears_no_more():
    service, said = FakeService(fails_at=2), []
    sink = TrackerSink("Tracker", lambda: service, said.append)
    for env_steps in (1, 2, 3):
        sink.write({"env_steps": env_steps, "loss": 0.5})
    sink.close()
    assert [env_steps for env_steps, _ in service.logged] == [1]
    assert said == ["Tracker stops here, the run goes on: no route"]


def test_a_tracker_that_does_not_start_is_one_line(tmp_path, monkeypatch):
    said = []
    monkeypatch.setitem(trackers.SERVICES, "wandb", lambda *_: 1 / 0)
    (sink,) = open_trackers(("tensorboard", "wandb", "wandb"), tmp_path, lambda: "id", {}, said.append)
    sink.write({"env_steps": 1, "loss": 0.5})
    sink.close()
    assert said == ["Weights & Biases stops here, the run goes on: division by zero"]


def test_a_tracker_that_is_not_installed_is_refused_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        require_trackers(("wandb", "trackio"))
    assert ['swell-rl[wandb]"' in caught.value.faults[0], 'swell-rl[trackio]"' in caught.value.faults[1]] == [
        True,
        True,
    ]
    with pytest.raises(ConfigError, match="is not installed"):
        execute(parse(["train", "CartPole-v1", "--track", "wandb", "--out", str(tmp_path / "run")]))
    assert not (tmp_path / "run").exists()


def swell(*arguments, cwd):
    settings = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(cwd / "trackio"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "swell", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **settings})
    assert answer.returncode == 0, answer.stderr
    return answer


def test_a_resumed_run_goes_on_as_the_same_tracked_run_offline(tmp_path):
    names = [name for name in ("wandb", "trackio") if trackers.find_spec(name)]
    if not names:
        pytest.skip('needs pip install "swell-rl[wandb,trackio]"')
    first = swell("train", "CartPole-v1", *SMALL, "--track", *names, "--out", "run", cwd=tmp_path)
    identity = json.loads((tmp_path / "run" / "trackers.json").read_text())["id"]
    second = swell("resume", "run", "--steps", "1200", cwd=tmp_path)
    for answer in (first, second):
        assert "stops here" not in answer.stdout + answer.stderr and "Trackio" not in answer.stdout
    if "wandb" in names:
        kept = [path.stem for path in (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")]
        assert kept and set(kept) == {f"run-{identity}"}
    if "trackio" in names:
        with sqlite3.connect(tmp_path / "trackio" / "swell.db") as database:
            rows = database.execute("select run_name, step, metrics from metrics").fetchall()
        assert {name for name, _, _ in rows} == {f"run-{identity}"}
        assert any(step <= 600 for _, step, _ in rows) and max(step for _, step, _ in rows) >= 1200
        assert any(
            "evaluation/mean_return" in (text if isinstance(text, str) else text.decode()) for _, _, text in rows
        )
