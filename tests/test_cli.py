"""The command line: what a person types, what it prints, and how it exits."""

import json
import os
import subprocess
import sys
import time

import pytest

SWELL = [sys.executable, "-m", "swell"]
SMALL = ["--steps", "1500", "--num-envs", "8", "--evaluation-episodes", "2"]


def swell(*arguments, cwd, **environment):
    return subprocess.run(
        [*SWELL, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}
    )


def last_line(result):
    return result.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("cli")
    result = swell("train", "CartPole-v1", *SMALL, "--out", "run", cwd=root)
    assert result.returncode == 0, result.stderr
    return root, result


def test_training_ends_with_a_report_and_the_next_commands(trained):
    _, result = trained
    for words in (
        "done",
        "run ",
        "return",
        "evaluation",
        "horizon",
        "gradient steps",
        "evaluate run",
        "resume run --steps",
    ):
        assert words in result.stdout


def test_training_leaves_the_files_of_a_run(trained):
    root, _ = trained
    names = {path.name for path in (root / "run").iterdir()}
    assert {"config.json", "metrics.jsonl", "evaluations.jsonl", "summary.json", "checkpoints"} <= names
    described = json.loads((root / "run" / "config.json").read_text())
    assert described["config"]["num_envs"] == 8
    assert described["config"]["preset"] == "classic"
    assert described["resume"].startswith("exact")
    assert {"torch", "numpy", "gymnasium"} <= described["versions"].keys()
    summary = json.loads((root / "run" / "summary.json").read_text())
    assert summary["status"] == "done"
    expected = {
        "env_steps",
        "gradient_steps",
        "evaluation_return",
        "steps_per_second",
        "wall_seconds",
        "peak_memory_mb",
    }
    assert expected <= summary.keys()


def test_plain_lines_say_why_the_batch_changed(trained):
    _, result = trained
    assert "horizon" in result.stdout
    assert "steps/s" in result.stdout
    assert "\x1b[" not in result.stdout


def test_evaluate_prints_a_score(trained):
    root, _ = trained
    result = swell("evaluate", "run", "--episodes", 3, cwd=root)
    assert result.returncode == 0, result.stderr
    assert "over 3 greedy episodes" in result.stdout


def test_evaluate_films_an_episode(trained):
    pytest.importorskip("imageio")
    pytest.importorskip("pygame")
    root, _ = trained
    result = swell("evaluate", "run", "--episodes", 1, "--video", "film.gif", cwd=root, SDL_VIDEODRIVER="dummy")
    assert result.returncode == 0, result.stderr
    assert (root / "film.gif").read_bytes()[:3] == b"GIF"


def test_a_second_run_of_the_same_name_is_refused_with_the_way_out(trained):
    root, _ = trained
    before = (root / "run" / "metrics.jsonl").read_bytes()
    result = swell("train", "CartPole-v1", *SMALL, "--out", "run", cwd=root)
    assert result.returncode == 2
    assert "swell resume run" in last_line(result) and "--new" in last_line(result)
    assert (root / "run" / "metrics.jsonl").read_bytes() == before


def test_resuming_a_finished_run_says_so_and_exits_well(trained):
    root, _ = trained
    result = swell("resume", "run", cwd=root)
    assert result.returncode == 0
    assert "done" in result.stdout


def test_quiet_prints_only_the_report(tmp_path):
    result = swell("train", "CartPole-v1", *SMALL, "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("done")
    assert (tmp_path / "runs" / "CartPole-v1-pqn-adaptive-s1").is_dir()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "CartPole-v1", "--preset", "papr"], ["unknown preset papr", "did you mean paper"]),
        (["train", "CartPol-v1"], ["CartPol-v1", "CartPole-v1"]),
        (["train"], ["env is missing", "swell train CartPole-v1"]),
        (["train", "Pendulum-v1"], ["Discrete", "Pendulum-v1"]),
        (["train", "CartPole-v1", "--discount", "1.5"], ["discount must be", "1.5"]),
        (["train", "CartPole-v1", "--scaler", "ramp", "--ramp-from", "nowhere"], ["ramp_from", "nowhere"]),
        (["resume", "nowhere"], ["nowhere", "no run"]),
        (["evaluate", "nowhere"], ["nowhere", "no run"]),
    ],
)
def test_bad_input_ends_in_one_line_and_creates_nothing(tmp_path, arguments, words):
    result = swell(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert all(word in last_line(result) for word in words), result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "runs"])
    assert not list(tmp_path.glob("runs/*"))


def test_all_faults_are_listed_one_line_each(tmp_path):
    result = swell("train", "CartPole-v1", "--discount", "2", "--num-envs", "0", "--min-horizon", "99", cwd=tmp_path)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 3


def test_a_mistyped_flag_gets_the_nearest_name(tmp_path):
    result = swell("train", "CartPole-v1", "--max-horizn", "3", cwd=tmp_path)
    assert result.returncode == 2
    assert "--max-horizon" in result.stdout + result.stderr


def test_a_run_that_diverges_exits_3_and_names_the_last_good_checkpoint(tmp_path):
    # Without LayerNorm's help a huge rate would do; with it, the squared error of a huge reward overflows.
    arguments = ["train", "CartPole-v1", "--steps", "3000", "--reward-scale", "1e30", "--out", "run"]
    result = swell(*arguments, cwd=tmp_path)
    assert result.returncode == 3, result.stderr
    assert "no finite update" in last_line(result) and "learning_rate" in last_line(result)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "diverged"


def test_a_place_that_cannot_be_written_exits_5(tmp_path):
    (tmp_path / "file").write_text("here")
    result = swell("train", "CartPole-v1", *SMALL, "--out", "file/run", cwd=tmp_path)
    assert result.returncode == 5
    assert "file/run" in last_line(result)


def test_a_batch_that_cannot_fit_exits_6_before_it_starts(tmp_path):
    result = swell("train", "CartPole-v1", "--scaler", "fixed", "--horizon", "2000000000", "--out", "run", cwd=tmp_path)
    assert result.returncode == 6
    assert "horizon 2000000000" in last_line(result)
    assert not (tmp_path / "run").exists()


def test_presets_are_listed_with_a_line_each(tmp_path):
    result = swell("presets", cwd=tmp_path)
    assert result.returncode == 0
    assert {"paper", "release", "pqn-atari"} <= {line.split()[0] for line in result.stdout.splitlines()}


def test_help_shows_the_defaults_of_the_preset_that_would_be_used(tmp_path):
    assert "128" in swell("train", "pong", "--help", cwd=tmp_path).stdout.split("--num-envs")[1][:300]
    learner = swell("train", "CartPole-v1", "--algorithm", "ppo", "--help", cwd=tmp_path).stdout
    assert "default: 8)" in learner.split("--num-envs")[1][:300]


def test_ctrl_c_saves_and_names_the_resume_command(tmp_path):
    import signal

    process = subprocess.Popen(
        [*SWELL, "train", "CartPole-v1", "--steps", "5000000", "--out", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "run" / "metrics.jsonl"
    while not log.exists() or log.stat().st_size < 2000:
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "swell resume run" in errors
    assert "Traceback" not in errors


def test_a_closed_pipe_does_not_stop_a_run(tmp_path):
    command = " ".join([*SWELL, "train", "CartPole-v1", *SMALL, "--out", "run"])
    subprocess.run(f"{command} | head -n 1", shell=True, cwd=tmp_path, capture_output=True, check=True)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "done"


FAULTY = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Faulty(CartPoleEnv):
    def step(self, action):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls > 70:
            raise RuntimeError("the motor is on fire")
        return super().step(action)

gymnasium.register("Faulty-v0", entry_point=Faulty, max_episode_steps=500)
"""


def test_an_env_that_raises_exits_4_and_says_where(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    result = swell("train", "faulty:Faulty-v0", *SMALL, "--out", "run", cwd=tmp_path)
    assert result.returncode == 4, result.stderr
    assert "the motor is on fire" in last_line(result) and "Faulty-v0" in last_line(result)
    assert "Traceback" not in result.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
