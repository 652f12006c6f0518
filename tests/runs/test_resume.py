"""A resumed run equals an uninterrupted one, bit for bit, and each saved piece is needed for that."""

import hashlib
import math
import os
import shutil
import signal

import pytest
from kill import fresh_state, in_child, outcome, resume_and_kill, run_and_kill, run_and_signal, same, small_config

from swell.config.run_config import config_from_dict
from swell.envs.workers import WorkerEnvs
from swell.errors import ConfigError, EnvironmentFailedError, StorageError
from swell.kernels.factory import can_compile
from swell.runs import checkpoint, driver, run_directory, saving, start as runs
from swell.runs.agent import load_policy
from swell.runs.build import build
from swell.runs.checkpoint import load_newest
from swell.runs.description import read_description
from swell.runs.driver import Run
from swell.runs.interrupt import InterruptedRunError
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import read_json
from swell.runs.start import resume, run

ENVS = ["CartPole-v1", "Acrobot-v1", "MinAtar/Breakout-v1", "MinAtar/Asterix-v1"]


def require(env):
    if env.startswith("MinAtar"):
        pytest.importorskip("minatar")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What whole runs leave behind, made once per env."""
    made = {}

    def reference(env="CartPole-v1", **fields):
        key = (env, *sorted(fields.items()))
        if key not in made:
            directory = tmp_path_factory.mktemp("reference") / "run"
            run(small_config(env, **fields), directory, quiet=True)
            made[key] = outcome(directory)
        return made[key]

    return reference


POINTS = [
    (saving, "save_checkpoint", 2, "before"),
    (saving, "save_checkpoint", 3, "after"),
    (checkpoint.os, "replace", 3, "before"),
    (checkpoint, "write_durably", 8, "after"),
    (saving, "prune", 4, "before"),
    (driver.Run, "_log", 40, "before"),
    (driver.Run, "_evaluate", 1, "after"),
    (driver.Run, "_evaluate", 2, "before"),
    (driver.Run, "_summarise", 1, "before"),
    (driver.Run, "_log", 3, "after"),
]


@pytest.mark.parametrize(("module", "name", "call", "when"), POINTS, ids=[f"{n}-{c}-{w}" for _, n, c, w in POINTS])
def test_a_run_killed_at_any_point_ends_like_an_uninterrupted_one(tmp_path, uninterrupted, module, name, call, when):
    assert run_and_kill(small_config(), tmp_path / "run", module, name, call, when)
    resume(tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), uninterrupted())


@pytest.mark.parametrize("env", ENVS[1:])
def test_a_killed_run_of_another_env_ends_like_an_uninterrupted_one(tmp_path, uninterrupted, env):
    require(env)
    assert run_and_kill(small_config(env), tmp_path / "run", driver.Run, "_log", 45)
    resume(tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), uninterrupted(env))


def test_a_killed_atari_run_replays_its_games_and_ends_like_an_uninterrupted_one(tmp_path, uninterrupted):
    pytest.importorskip("ale_py")
    fields = {"total_env_steps": 480, "num_envs": 4, "checkpoint_every": 150, "evaluate_every": 0}
    fields |= {"evaluation_episodes": 0, "min_horizon": 4, "max_horizon": 8}
    config = small_config("ALE/Pong-v5", **fields)
    assert run_and_kill(config, tmp_path / "run", driver.Run, "_log", 14)
    resume(tmp_path / "run", quiet=True)
    assert read_json(tmp_path / "run" / "config.json")["resume"].startswith("exact by replay")
    assert same(outcome(tmp_path / "run"), uninterrupted("ALE/Pong-v5", **fields))


SHORT = {"total_env_steps": 1200, "checkpoint_every": 200, "evaluate_every": 0, "evaluation_episodes": 2}
POLICIES = {
    "scaler": "adaptive",
    "min_horizon": 4,
    "max_horizon": 16,
    "measure_every": 2,
    "epochs": 2,
    "learning_rate": 1e-2,
    "hidden": (16,),
}
PHASES = {"phase_env_steps": 300, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 64}
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}
LEARNERS = {
    "pqn": ("CartPole-v1", {"algorithm": "pqn", "scaler": "noise-scale"}),
    "ppo": ("CartPole-v1", {"algorithm": "ppo"}),
    "ppo-stale": ("CartPole-v1", {"algorithm": "ppo", "staleness": 2}),
    "ppo-normalized": ("Pendulum-v1", {"algorithm": "ppo", **NORMALIZED}),
    "ppo-ewma": ("CartPole-v1", {"algorithm": "ppo-ewma", "advantage_decay": 0.9, "invariance": "on"}),
    "ppg": ("CartPole-v1", {"algorithm": "ppg", "advantage_decay": 0.9, **PHASES}),
    "ppg-ewma": ("Pendulum-v1", {"algorithm": "ppg-ewma", **PHASES, **NORMALIZED}),
    "ess": ("CartPole-v1", {"algorithm": "ess", "scaler": "noise-scale", "batch_per_noise_scale": 24.0}),
    "ess-stale": ("Pendulum-v1", {"algorithm": "ess", "staleness": 1, "ess_scope": "minibatch", **NORMALIZED}),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_killed_run_of_every_learner_ends_like_an_uninterrupted_one(tmp_path, uninterrupted, name):
    env, fields = LEARNERS[name]
    fields = {**SHORT, **POLICIES, **fields}
    directory = tmp_path / "run"
    assert run_and_kill(small_config(env, **fields), directory, driver.Run, "_log", 9)
    found = load_newest(directory / "checkpoints", print)
    assert found is not None and found[0] >= 200
    learner = found[1]["learner"]
    assert learner["path"] == ("compiled" if can_compile() else "autograd")
    if "ppg" in name:
        assert 0.0 < learner["phase_done"] < 1.0 and len(learner["phase"]["returns"]) > 0
        assert learner["auxiliary_optimizer"]["steps"] > 0, "no auxiliary phase was over yet"
    if "stale" in name:
        assert len(found[1]["collector"]["delay"]["waiting"]) == fields["staleness"]
    if env == "Pendulum-v1":
        assert learner["network"]["normalizer.count"] > 0 and learner["reward_normalizer"]["count"] > 0
    resume(directory, quiet=True)
    assert same(outcome(directory), uninterrupted(env, **fields))


def test_dropping_the_rollouts_that_wait_changes_the_outcome(tmp_path, uninterrupted):
    env, fields = LEARNERS["ppo-stale"]
    fields = {**SHORT, **POLICIES, **fields}
    assert run_and_kill(small_config(env, **fields), tmp_path / "run", driver.Run, "_log", 9)

    def drop(state, fresh):
        state["collector"]["delay"] = fresh["collector"]["delay"]

    finish(tmp_path / "run", drop)
    assert not same(outcome(tmp_path / "run"), uninterrupted(env, **fields))


def test_dropping_the_averages_of_the_noise_scale_changes_the_outcome(tmp_path, uninterrupted):
    env, fields = LEARNERS["pqn"]
    fields = {**SHORT, **POLICIES, **fields}
    assert run_and_kill(small_config(env, **fields), tmp_path / "run", driver.Run, "_log", 9)

    def drop(state, fresh):
        state["measurement"]["signal"] = fresh["measurement"]["signal"]

    finish(tmp_path / "run", drop)
    assert not same(outcome(tmp_path / "run"), uninterrupted(env, **fields))


def test_dropping_what_an_interval_compares_with_changes_the_outcome(tmp_path, uninterrupted):
    assert run_and_kill(small_config(window="interval"), tmp_path / "run", driver.Run, "_log", 45)

    def drop(state, fresh):
        assert state["measurement"]["kept"] is not None
        state["measurement"]["kept"] = fresh["measurement"]["kept"]

    finish(tmp_path / "run", drop)
    assert not same(outcome(tmp_path / "run"), uninterrupted(window="interval"))


def test_an_interval_window_survives_a_kill(tmp_path, uninterrupted):
    config = small_config(window="interval")
    assert run_and_kill(config, tmp_path / "run", driver.Run, "_log", 45)
    resume(tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), uninterrupted(window="interval"))


def test_many_kills_in_one_run_and_during_resume_change_nothing(tmp_path, uninterrupted):
    directory = tmp_path / "run"
    assert run_and_kill(small_config(), directory, driver.Run, "_log", 20)
    assert resume_and_kill(directory, driver, "JsonLines", 1, "after")
    assert resume_and_kill(directory, runs, "load_newest", 1)
    assert resume_and_kill(directory, driver.Run, "_log", 25)
    assert resume_and_kill(directory, checkpoint.os, "replace", 2)
    resume(directory, quiet=True)
    assert same(outcome(directory), uninterrupted())


PIECES = [
    ("learner", "network"),
    ("learner", "optimizer"),
    ("learner", "exploration"),
    ("learner", "shuffle"),
    ("learner", "gradient_steps"),
    ("collector", "envs"),
    ("collector", "observations"),
    ("collector", "episodes"),
    ("collector", "num_rollouts"),
    ("measurement", "generator"),
    ("measurement", "cadence"),
    ("scaler", "horizon"),
    ("scaler", "readings"),
]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run killed where its next iteration takes no reading, so that a forgotten cadence shows."""
    config = small_config()
    for call in range(45, 65, 5):
        directory = tmp_path_factory.mktemp("killed") / "run"
        assert run_and_kill(config, directory, driver.Run, "_log", call)
        found = load_newest(directory / "checkpoints", print)
        assert found is not None
        if (found[1]["collector"]["num_rollouts"] + 1) % config.measure_every:
            return directory
    raise AssertionError("every checkpoint stood right before a reading")


def finish(directory, change):
    """Resumes by hand from a state that `change` has tampered with."""
    config = config_from_dict(read_json(directory / "config.json")["config"])
    found = load_newest(directory / "checkpoints", print)
    assert found is not None
    change(found[1], fresh_state(config))
    continued = Run(config, directory, build(config), True, read_description(directory), found[1]["logs"])
    continued.restore(found[1], [])
    continued.drive()


def test_resuming_by_hand_with_nothing_dropped_changes_nothing(tmp_path, killed, uninterrupted):
    shutil.copytree(killed, tmp_path / "run")
    finish(tmp_path / "run", lambda state, fresh: None)
    assert same(outcome(tmp_path / "run"), uninterrupted())


@pytest.mark.parametrize(("part", "piece"), PIECES)
def test_dropping_a_saved_piece_changes_the_outcome(tmp_path, killed, uninterrupted, part, piece):
    shutil.copytree(killed, tmp_path / "run")

    def drop(state, fresh):
        state[part][piece] = fresh[part][piece]

    finish(tmp_path / "run", drop)
    assert not same(outcome(tmp_path / "run"), uninterrupted())


@pytest.mark.parametrize(("log", "name"), [("metrics", "_log"), ("evaluations", "_evaluate")])
def test_a_log_that_is_not_cut_back_would_hold_lines_twice(tmp_path, uninterrupted, log, name):
    directory = tmp_path / "run"
    assert run_and_kill(small_config(), directory, driver.Run, name, {"_log": 45, "_evaluate": 1}[name], "after")

    def keep_all(state, fresh):
        data = (directory / f"{log}.jsonl").read_bytes()
        assert len(data) > state["logs"][log]["bytes"], "nothing was logged past the checkpoint"
        state["logs"][log] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    finish(directory, keep_all)
    assert not same(outcome(directory), uninterrupted())


def test_the_log_of_a_resumed_run_has_each_iteration_once(tmp_path):
    assert run_and_kill(small_config(), tmp_path / "run", driver.Run, "_log", 45, "after")
    resume(tmp_path / "run", quiet=True)
    iterations = [row["iteration"] for row in read_jsonl(tmp_path / "run" / "metrics.jsonl")]
    assert iterations == list(range(1, len(iterations) + 1))


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_corrupt_newest_checkpoint_is_moved_aside_and_the_one_before_is_used(tmp_path, killed, uninterrupted, capsys):
    directory = tmp_path / "run"
    shutil.copytree(killed, directory)
    newest = max((directory / "checkpoints").glob("step-*"))
    flip_a_byte(newest / "state.safetensors")
    resume(directory)
    assert newest.name in capsys.readouterr().err
    assert list((directory / "checkpoints").glob(f"bad-{newest.name}*"))
    assert same(outcome(directory), uninterrupted())


def test_when_every_checkpoint_is_bad_nothing_is_touched(tmp_path, killed):
    directory = tmp_path / "run"
    shutil.copytree(killed, directory)
    for path in (directory / "checkpoints").glob("step-*"):
        flip_a_byte(path / "state.json")
    before = sorted(os.listdir(directory / "checkpoints"))
    with pytest.raises(StorageError):
        resume(directory, quiet=True)
    assert sorted(os.listdir(directory / "checkpoints")) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_resumed_run_ends_like_an_uninterrupted_one(tmp_path, uninterrupted, number, code):
    directory = tmp_path / "run"
    assert run_and_signal(small_config(), directory, number, 0.1) == code
    assert read_json(directory / "summary.json")["status"] == "interrupted"
    resume(directory, quiet=True)
    assert read_json(directory / "summary.json")["status"] == "done"
    assert same(outcome(directory)["metrics"], uninterrupted()["metrics"])
    assert same(outcome(directory)["state"]["learner"], uninterrupted()["state"]["learner"])


def test_the_message_of_a_stopped_run_names_the_way_back(tmp_path, monkeypatch):
    original = driver.Run._log

    def stop_after_three(self, iteration, seconds):
        original(self, iteration, seconds)
        if iteration.number == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(driver.Run, "_log", stop_after_three)
    with pytest.raises(InterruptedRunError, match="swell resume"):
        run(small_config(), tmp_path / "run", quiet=True)


def test_resuming_a_finished_run_changes_no_file(tmp_path):
    directory = tmp_path / "run"
    run(small_config(), directory, quiet=True)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    summary = resume(directory, quiet=True)
    assert summary["status"] == "done"
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_a_finished_run_can_go_on_for_longer(tmp_path):
    run(small_config(total_env_steps=2000), tmp_path / "run", quiet=True)
    summary = resume(tmp_path / "run", total_env_steps=4000, quiet=True)
    assert 4000 <= summary["env_steps"] < 4000 + 8
    steps = [row["env_steps"] for row in read_jsonl(tmp_path / "run" / "metrics.jsonl")]
    assert steps == sorted(set(steps))


def test_a_run_killed_after_it_reached_its_target_does_not_train_on(tmp_path):
    config = small_config(target_return=5.0, evaluate_every=1000)
    run(config, tmp_path / "whole", quiet=True)
    assert run_and_kill(config, tmp_path / "run", driver.Run, "_summarise", 1)
    resume(tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), outcome(tmp_path / "whole"))
    assert resume(tmp_path / "run", total_env_steps=3000, quiet=True)["env_steps"] >= 3000


def test_the_best_policy_is_the_one_that_scored_best(tmp_path):
    run(small_config(), tmp_path / "run", quiet=True)
    evaluations = read_jsonl(tmp_path / "run" / "evaluations.jsonl")
    best = max(evaluations, key=lambda row: row["mean_return"])["env_steps"]
    assert load_policy(tmp_path / "run", "best").env_steps == best
    assert load_policy(tmp_path / "run").env_steps == evaluations[-1]["env_steps"]


def test_a_run_without_a_checkpoint_starts_anew(tmp_path, uninterrupted):
    assert run_and_kill(small_config(), tmp_path / "run", driver.Run, "_log", 2, "after")
    assert not (tmp_path / "run" / "checkpoints").exists()
    resume(tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), uninterrupted())


def test_a_moved_run_directory_resumes(tmp_path, killed, uninterrupted):
    shutil.copytree(killed, tmp_path / "elsewhere" / "renamed")
    resume(tmp_path / "elsewhere" / "renamed", quiet=True)
    assert same(outcome(tmp_path / "elsewhere" / "renamed"), uninterrupted())


def test_a_run_directory_is_never_overwritten(tmp_path):
    config = small_config(total_env_steps=200, evaluation_episodes=0)
    run(config, tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match="swell resume"):
        run(config, tmp_path / "run", quiet=True)
    assert run(config, tmp_path / "run", new=True, quiet=True)["directory"] == str(tmp_path / "run-2")


def test_only_one_process_may_work_in_a_run_directory(tmp_path, killed):
    shutil.copytree(killed, tmp_path / "run")
    with run_directory.RunLock(tmp_path / "run"):
        assert in_child(lambda: resume(tmp_path / "run", quiet=True)) == 2


def full_disk(times):
    """A save_checkpoint that fails so many times and then works."""
    failures = iter(range(times))

    def save(*arguments):
        if next(failures, None) is not None:
            raise StorageError("cannot save 3 MB (0 MB free)")
        return checkpoint.save_checkpoint(*arguments)

    return save


def test_a_full_disk_costs_checkpoints_and_not_the_run(tmp_path, monkeypatch, capsys, uninterrupted):
    monkeypatch.setattr(saving, "save_checkpoint", full_disk(times=2))
    assert run(small_config(), tmp_path / "run")["status"] == "done"
    assert capsys.readouterr().out.count("checkpoint not written") == 2
    assert same(outcome(tmp_path / "run")["metrics"], uninterrupted()["metrics"])


def test_a_disk_that_stays_full_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "save_checkpoint", full_disk(times=3))
    with pytest.raises(StorageError, match="0 MB free"):
        run(small_config(), tmp_path / "run", quiet=True)
    assert read_json(tmp_path / "run" / "summary.json")["status"] == "failed"


@pytest.fixture
def worker_death(monkeypatch):
    """Of env 2, in a worker process, at the given step of the run."""

    def arrange(at_step):
        step, steps = WorkerEnvs.step, []

        def deadly(envs, actions):
            steps.append(1)
            if len(steps) == at_step:
                os.kill(envs._envs.processes[2].pid, signal.SIGKILL)
            return step(envs, actions)

        monkeypatch.setattr(WorkerEnvs, "step", deadly)

    return arrange


def test_a_run_whose_worker_is_killed_saves_what_it_had_before_that_rollout(
    tmp_path, monkeypatch, uninterrupted, worker_death
):
    monkeypatch.setattr(saving, "SECONDS_BETWEEN_SPARES", 0.0)
    monkeypatch.setattr(saving, "SPARES_PER_SECOND", math.inf)
    fields = {"async_envs": True, "num_envs": 4, "total_env_steps": 2000, "checkpoint_every": 900}
    worker_death(at_step=401)
    with pytest.raises(EnvironmentFailedError, match=r"worker process of env 2 was killed by SIGKILL") as death:
        run(small_config(**fields), tmp_path / "run", quiet=True)
    saved = load_newest(tmp_path / "run" / "checkpoints", print)
    assert saved is not None and 1540 <= saved[0] < 1604
    assert f"saved at {saved[0]:,} env steps; go on with `swell resume " in str(death.value)
    monkeypatch.undo()
    resume(tmp_path / "run", quiet=True)
    assert same(outcome(tmp_path / "run"), uninterrupted(**fields))


def test_a_spare_does_not_bring_a_deleted_run_back(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "SECONDS_BETWEEN_SPARES", 0.0)
    directory = tmp_path / "run"
    directory.mkdir()
    saver = saving.Saver(small_config(), directory / "checkpoints", print)
    saver.keep_spare(7, lambda: {"learner": {}})
    assert saver.write_spare() == 7
    shutil.rmtree(directory)
    assert saver.write_spare() is None
    assert not directory.exists()


def test_a_worker_that_is_killed_before_anything_was_saved_names_what_there_is(tmp_path, worker_death):
    worker_death(at_step=50)
    with pytest.raises(EnvironmentFailedError, match=r"env 2 was killed.*; no checkpoint had been written yet; go on"):
        run(small_config(async_envs=True, num_envs=4, total_env_steps=2000), tmp_path / "run", quiet=True)
