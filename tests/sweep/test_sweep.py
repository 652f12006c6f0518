"""Sweeps: what a space may be, that trials are drawn once, halved by env steps and told, and what comes of them."""

import json

import pytest
from small_bench import FakeExecutor, leave

from swell import presets
from swell.bench.board import QuietBoard
from swell.bench.queue import run_benchmark
from swell.bench.status import RunState, read_state
from swell.cli import execute, parse
from swell.errors import ConfigError
from swell.sweep import command as sweeping
from swell.sweep.space import parse_space

optuna = pytest.importorskip("optuna", reason='needs pip install "swell-rl[sweep]"')
from swell.sweep.trials import Trials  # noqa: E402

SPACE = ("learning_rate=log:1e-5..1e-2", "epochs=1,2,4", "hidden=32x32,64", "minibatch_size=64..256")


def asked(out, *more):
    return parse(["sweep", "CartPole-v1", "--space", *SPACE, "--steps", "9000", "--out", str(out), *more])


def prepared(out, trials=4, **fields):
    """The plan of a sweep and what oversees it."""
    command = asked(out, "--trials", str(trials))
    base = sweeping.base_config(command)
    space = parse_space(command.space, base)
    runs = sweeping.planned_trials(command, base, tuple(part.name for part in space))
    return command, base, runs, Trials(out, space, sweeping.rungs_of(command, base.total_env_steps), 3, seed=1)


def told(trials):
    return [trial.state.name for trial in trials.study.get_trials()]


def test_what_is_drawn_lies_in_the_space_and_is_what_the_option_takes(tmp_path):
    _, _, runs, trials = prepared(tmp_path, 8)
    configs = [trials.config_of(run) for run in runs]
    assert all(1e-5 <= config.learning_rate <= 1e-2 and config.epochs in (1, 2, 4) for config in configs)
    assert {config.hidden for config in configs} <= {(32, 32), (64,)}
    assert all(isinstance(config.minibatch_size, int) for config in configs)
    assert len({config.learning_rate for config in configs}) == len({config.seed for config in configs}) == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lerning_rate=1..2", "did you mean learning_rate"),
        ("learning_rate", "OPTION=LOW..HIGH"),
        ("learning_rate=1e-2..1e-5", "a larger one"),
        ("learning_rate=log:0..1", "above 0"),
        ("learning_rate=a..b", "two numbers"),
        ("epochs=2", "two values or more"),
        ("epochs=0..4", "epochs must be a whole number of at least 1, got 0"),
        ("epochs=1,many", "got 'many'"),
        ("clip_range=0.1..0.3", "not read by pqn"),
        ("seed=1,2", "each trial has its own"),
        ("steps=100,200", "cannot be compared"),
    ],
)
def test_a_wrong_part_of_the_space_is_told_in_a_line(text, words):
    with pytest.raises(ConfigError) as caught:
        parse_space([text, "discount=0.9..0.99"], presets.make_config("CartPole-v1"))
    (fault,) = caught.value.faults
    assert fault.startswith(f"space {text}: ") and words in fault


def test_every_process_that_comes_upon_a_run_gets_the_same_draw(tmp_path):
    _, _, runs, first = prepared(tmp_path)
    drawn = [first.config_of(run) for run in runs[:2]]
    _, _, _, second = prepared(tmp_path)
    assert [second.config_of(run) for run in runs[:2]] == drawn
    assert second.config_of(runs[2]) not in drawn and len(told(first)) == 3


def write_rows(run, root, returns):
    """A log whose rows end a little beyond each thousand env steps, as those of a moving batch do."""
    directory = run.directory(root)
    directory.mkdir(parents=True, exist_ok=True)
    rows = [{"env_steps": 1000 * (at + 1) + 7, "episode_return": value} for at, value in enumerate(returns)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RunState(run, "running", env_steps=rows[-1]["env_steps"])


def test_a_run_is_judged_by_its_first_row_at_a_rung_however_late_one_looks(tmp_path):
    _, _, runs, trials = prepared(tmp_path)
    assert trials._rungs == [1000, 3000]
    for run in runs[:3]:
        trials.config_of(run)
    assert trials.is_hopeless(write_rows(runs[0], tmp_path, [50, 60, 70, 80])) is None
    assert [*trials.study.get_trials()[0].intermediate_values.items()] == [(1007, 50.0), (3007, 70.0)]
    behind = trials.is_hopeless(write_rows(runs[1], tmp_path, [40, 500, 500]))
    assert "return 40 at 1,007 env steps" in behind
    assert trials.is_hopeless(write_rows(runs[2], tmp_path, [60])) is None
    assert trials.is_hopeless(write_rows(runs[2], tmp_path, [60, 60, 65])) is not None


def test_results_are_told_once_and_a_failed_run_is_left_open(tmp_path):
    _, _, runs, trials = prepared(tmp_path)
    for run, status in zip(runs, ("done", "diverged", "stopped", "failed"), strict=True):
        trials.config_of(run)
        state = RunState(run, status, score=30.0 if status == "done" else None)
        trials.ended(state)
        trials.ended(state)
    assert told(trials) == ["COMPLETE", "PRUNED", "PRUNED", "RUNNING"]
    assert trials.best().value == 30.0


def test_a_sweep_on_the_queue_ends_with_a_preset_and_goes_on_with_more_trials(tmp_path):
    _, _, runs, trials = prepared(tmp_path, 3)
    failing = {runs[1].name: ["failed", "done"]}
    executor = FakeExecutor(tmp_path, script=failing)
    result = run_benchmark(runs, tmp_path, executor, QuietBoard(), patience=0, overseer=trials)
    assert (len(result.finished), len(result.failed)) == (2, 1)
    command, base, runs, trials = prepared(tmp_path, 5)
    executor = FakeExecutor(tmp_path)
    result = run_benchmark(runs, tmp_path, executor, QuietBoard(), patience=0, overseer=trials)
    assert sorted(executor.started) == sorted(run.name for run in (runs[1], *runs[3:]))
    assert told(trials) == ["COMPLETE"] * 5
    words = sweeping.conclude(command, base, trials)
    assert f"swell train CartPole-v1 --preset {tmp_path}/best.toml" in words and "--first-seed 6" in words
    config = presets.make_config("CartPole-v1", preset=str(tmp_path / "best.toml"))
    assert config.learning_rate == trials.best().params["learning_rate"] and config.total_env_steps == 9000
    assert config.threads == 0 and parse(words.splitlines()[-1].split()[1:]).first_seed == 6


def test_a_hopeless_run_is_stopped_for_good(tmp_path):
    _, _, runs, trials = prepared(tmp_path, 2)
    leave(runs[0], tmp_path, env_steps=2000, config=trials.config_of(runs[0]))
    (runs[0].directory(tmp_path) / "stopped.json").write_text("{}")
    executor = FakeExecutor(tmp_path)
    result = run_benchmark(runs, tmp_path, executor, QuietBoard(), patience=0, overseer=trials)
    assert executor.started == [runs[1].name] and "1 stopped early" in result.report()
    assert read_state(runs[0], tmp_path).status == "stopped" and told(trials)[0] == "PRUNED"


def test_a_directory_of_another_sweep_is_refused(tmp_path):
    prepared(tmp_path)
    base = presets.make_config("CartPole-v1")
    with pytest.raises(ConfigError, match="holds another sweep"):
        Trials(tmp_path, parse_space(["epochs=1,2"], base), [1000, 3000], 3, seed=1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--trials", "0"], "trials must be at least 1"),
        (["--first-rung", "9000"], "first_rung must be at least 1 and less than"),
        (["--set", "epohcs=1"], "did you mean epochs"),
    ],
)
def test_a_mistake_is_answered_in_one_line(tmp_path, more, words):
    with pytest.raises(ConfigError, match=words):
        execute(asked(tmp_path / "out", *more))
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prints_the_plan_refuses_and_leaves_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    execute(asked(out, "--dry-run"))
    printed = capsys.readouterr().out
    assert "40 trials on CartPole-v1" in printed and "at 1,000, 3,000 env steps" in printed
    with pytest.raises(ConfigError, match="pqn needs a Discrete action space"):
        execute(parse(["sweep", "Pendulum-v1", "--space", "epochs=1,2", "--dry-run", "--out", str(out)]))
    assert not out.exists()
