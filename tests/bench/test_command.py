"""`swell bench` and `swell report` as a user types them."""

import json
import subprocess
import sys

import pytest
from small_bench import leave, small_plan

from swell.cli import execute, parse
from swell.errors import ConfigError

TINY = [
    "--steps",
    "600",
    "--set",
    "num_envs=4",
    "min_horizon=4",
    "max_horizon=16",
    "measure_every=1",
    "evaluation_episodes=1",
]


def swell(*arguments, cwd=None):
    command = [sys.executable, "-m", "swell", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_a_dry_run_prints_the_plan_and_leaves_nothing(tmp_path, capsys):
    out = tmp_path / "bench"
    execute(
        parse(
            ["bench", "classic", "--variants", "fixed:16", "adaptive", "--seeds", "3", "--dry-run", "--out", str(out)]
        )
    )
    printed = capsys.readouterr().out
    assert "3 envs × 2 variants × 3 seeds = 18 runs" in printed
    assert "LunarLander-v3" in printed and "env steps" in printed and "GB" in printed
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench"], ["atari57", "swell bench classic"]),
        (["bench", "nosuite"], ["nosuite", "suites:"]),
        (["bench", "CartPole-v1", "--variants", "fixd:3"], ["fixd", "did you mean"]),
        (["bench", "CartPole-v1", "--seeds", "0"], ["seeds", "at least 1"]),
        (["bench", "CartPole-v1", "--steps", "0"], ["total_env_steps", "at least 1"]),
        (["bench", "CartPole-v1", "--jobs", "-1"], ["jobs", "at least 0"]),
        (["bench", "CartPole-v1", "--set", "lerning_rate=1"], ["lerning_rate", "did you mean learning_rate"]),
        (["report"], ["swell report bench"]),
        (["report", "/nowhere/at/all"], ["/nowhere/at/all"]),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, words):
    answer = swell(*arguments)
    assert answer.returncode == 2 and len(answer.stderr.strip().splitlines()) == 1
    assert all(word in answer.stderr for word in words), answer.stderr


def test_a_dry_run_refuses_what_the_benchmark_itself_refuses(tmp_path):
    asked = ["bench", "CartPole-v1", "Pendulum-v1", "--variants", "fixed:8", "--seeds", "2", "--out", tmp_path / "new"]
    dry, real = swell(*asked, "--dry-run"), swell(*asked)
    assert dry.returncode == real.returncode == 2
    (line,) = dry.stderr.strip().splitlines()
    assert "variant 'fixed:8' on Pendulum-v1: pqn needs a Discrete action space" in line
    assert "try --set algorithm=ppo" in line and dry.stderr == real.stderr
    assert not (tmp_path / "new").exists()


def test_a_dry_run_refuses_a_directory_that_holds_runs_of_another_plan(tmp_path, capsys):
    leave(small_plan("fixed:8")[0], tmp_path)
    with pytest.raises(ConfigError, match="holds runs of another plan"):
        execute(parse(["bench", "CartPole-v1", "--variants", "fixed:8", "--dry-run", "--out", str(tmp_path)]))


FAILS_AT_A_STEP = """
import gymnasium

class Failing(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        raise ZeroDivisionError("no luck")

gymnasium.register("Failing-v0", Failing, max_episode_steps=20)
"""


def test_a_failed_run_ends_the_benchmark_in_one_plain_line(tmp_path):
    (tmp_path / "failing.py").write_text(FAILS_AT_A_STEP)
    answer = swell("bench", "failing:Failing-v0", "--variants", "fixed:8", "--seeds", "1", *TINY[:2], cwd=tmp_path)
    assert answer.returncode == 1
    assert answer.stderr == "swell: 1 of 1 runs failed; the same command tries them again\n"
    assert "no luck" in answer.stdout


def test_a_benchmark_runs_its_controls_reports_and_goes_on(tmp_path):
    out = tmp_path / "bench"
    asked = ["bench", "CartPole-v1", "--seeds", "2", *TINY, "--jobs", "2", "--out", str(out), "--variants"]
    first = swell(*asked, "adaptive", "ramp-replay")
    assert first.returncode == 0, first.stderr
    assert "4 of 4 finished" in first.stdout and (out / "report.html").stat().st_size > 1_000_000
    replayed, recorded = (
        horizons_of(out / "runs/CartPole-v1" / name) for name in ("ramp-replay/seed-1", "adaptive/seed-2")
    )
    both = min(len(replayed), len(recorded)) - 1  # the last rollout is cut to the run's total
    assert replayed[:both] == recorded[:both] and len(set(replayed)) > 3
    before = {path: path.stat().st_mtime_ns for path in out.rglob("metrics.jsonl")}
    again = swell(*asked, "adaptive", "ramp-replay", "fixed:8")
    assert again.returncode == 0 and "6 of 6 finished" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert set(horizons_of(out / "runs/CartPole-v1/fixed-8/seed-1")[:-1]) == {8}
    other = swell(*asked, "fixed:8", "--set", "epochs=7")
    assert other.returncode == 2 and "epochs is planned as 7" in other.stderr and "--out" in other.stderr


def horizons_of(directory):
    return [json.loads(line)["horizon"] for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_a_run_can_end_with_its_own_report(tmp_path, monkeypatch):
    out = tmp_path / "run"
    options = ["--steps", "600", "--num-envs", "4", "--evaluation-episodes", "1", "--quiet", "--report"]
    answer = swell("train", "CartPole-v1", *options, "--out", out)
    assert answer.returncode == 0, answer.stderr
    assert str(out / "report.html") in answer.stdout and (out / "report.html").exists()
