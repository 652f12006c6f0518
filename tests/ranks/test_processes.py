"""Runs of several real processes: they survive deaths and signals, bit for bit, and go on with another number."""

import os
import signal
import subprocess
import sys
import time

import pytest
from kill import outcome, same, small_config

from swell.runs.checkpoint import load_newest
from swell.runs.logs import read_jsonl
from swell.runs.run_directory import read_json

LIMIT = 400
"""Seconds that are far more than any of these takes on a loaded machine."""


def config_of(**fields):
    """A short run of a game that has a generator for each env, on the path that needs no compilation."""
    pytest.importorskip("minatar")
    short = {"total_env_steps": 1600, "checkpoint_every": 400, "evaluate_every": 700, "path": "autograd"}
    return small_config("MinAtar/Breakout-v1", **{**short, **fields})


def arguments_of(config, directory):
    """As they would be typed."""
    from swell.presets import make_config

    default = make_config(config.env, algorithm=config.algorithm).to_dict()
    changed = {name: value for name, value in config.to_dict().items() if value != default[name]}
    typed = ["train", config.env, "--algorithm", config.algorithm, "--out", str(directory), "--quiet"]
    for name, value in changed.items():
        if name in ("env", "algorithm"):
            continue
        flag = {"total_env_steps": "steps"}.get(name, name).replace("_", "-")
        typed += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return typed


def start(command, processes, *, torchrun=False, restarts=0, **more):
    """`swell … --processes N`, or the same under torchrun; `more` goes into the environment."""
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **more}
    if torchrun:
        launcher = ["--standalone", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
        line = [sys.executable, "-m", "torch.distributed.run", *launcher, "-m", "swell", *command]
    else:
        line = [sys.executable, "-m", "swell", *command, "--processes", str(processes)]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(process):
    said, _ = process.communicate(timeout=LIMIT)
    return process.returncode, said


def ranks_of(launcher):
    """Process ids of the processes that a launcher has started, by rank."""
    found = {}
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines()[1:]:
        pid, parent = map(int, line.split())
        if parent == launcher.pid:
            environment = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")  # noqa: SIM115
            ranks = [entry[5:] for entry in environment if entry.startswith(b"RANK=")]
            found |= {int(rank): pid for rank in ranks}
    return found


def wait_for_checkpoint(directory, launcher):
    deadline = time.monotonic() + LIMIT
    while not list((directory / "checkpoints").glob("step-*")):
        assert launcher.poll() is None, launcher.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What two processes leave behind, started by `--processes 2`."""
    directory = tmp_path_factory.mktemp("reference") / "run"
    code, said = finished(start(arguments_of(config_of(), directory), 2))
    assert code == 0, said
    return directory


def test_the_first_updates_are_those_of_one_process(uninterrupted, tmp_path):
    from swell.runs.start import run

    run(config_of(), tmp_path / "alone", quiet=True)
    one, two = (read_jsonl(directory / "metrics.jsonl") for directory in (tmp_path / "alone", uninterrupted))
    assert [row["env_steps"] for row in one[:2]] == [row["env_steps"] for row in two[:2]]
    assert one[0]["loss"] == pytest.approx(two[0]["loss"], rel=1e-4)
    assert one[0]["episodes"] == two[0]["episodes"]
    described = read_json(uninterrupted / "config.json")
    assert described["processes"] == 2 and described["resume"].startswith("exact")


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_run_whose_process_is_killed_ends_like_an_uninterrupted_one(uninterrupted, tmp_path, rank):
    """The first under torchrun with restarts, the second under our own command."""
    launcher = start(arguments_of(config_of(), tmp_path / "run"), 2, torchrun=rank == 0, restarts=2)
    wait_for_checkpoint(tmp_path / "run", launcher)
    os.kill(ranks_of(launcher)[rank], signal.SIGKILL)
    code, said = finished(launcher)
    assert code == 0, said
    assert same(outcome(tmp_path / "run"), outcome(uninterrupted))


@pytest.mark.parametrize("told", [pytest.param("launcher", marks=pytest.mark.slow), "rank"])
def test_a_signal_lets_all_processes_save_and_the_run_goes_on_bit_for_bit(uninterrupted, tmp_path, told):
    launcher = start(arguments_of(config_of(), tmp_path / "run"), 2)
    wait_for_checkpoint(tmp_path / "run", launcher)
    os.kill(launcher.pid if told == "launcher" else ranks_of(launcher)[1], signal.SIGTERM)
    code, said = finished(launcher)
    assert code == 128 + signal.SIGTERM, said
    assert read_json(tmp_path / "run" / "summary.json")["status"] == "interrupted"
    saved = load_newest(tmp_path / "run" / "checkpoints", print)
    assert saved is not None and len(saved[1]["processes"]) == 2
    code, said = finished(start(["resume", str(tmp_path / "run"), "--quiet"], 2))
    assert code == 0, said
    assert same(outcome(tmp_path / "run"), outcome(uninterrupted))


@pytest.mark.slow
def test_any_of_three_processes_may_be_killed(tmp_path):
    config = config_of(num_envs=9)
    code, said = finished(start(arguments_of(config, tmp_path / "whole"), 3))
    assert code == 0, said
    for rank in range(3):
        directory = tmp_path / f"rank {rank}"
        launcher = start(arguments_of(config, directory), 3)
        wait_for_checkpoint(directory, launcher)
        os.kill(ranks_of(launcher)[rank], signal.SIGKILL)
        code, said = finished(launcher)
        assert code == 0, said
        assert "a process died; all 3 start again from the newest checkpoint" in said
        assert same(outcome(directory), outcome(tmp_path / "whole")), rank


DISTURBING = """
import os

import torch
from swell import KLDivergence


class Disturbing(KLDivergence):
    def watch(self, policy):
        parameters = policy.gradient_probe()[2]
        if os.environ["RANK"] == "1":
            with torch.no_grad():
                parameters[0] += 1e-3
        return super().watch(policy)
"""


def test_weights_that_part_stop_the_run_before_anything_is_saved(tmp_path):
    (tmp_path / "disturbing.py").write_text(DISTURBING)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    config = config_of(algorithm="ppo", scaler="fixed", horizon=8)
    command = [*arguments_of(config, tmp_path / "run"), "--signal", "disturbing:Disturbing", "--measure-every", "1"]
    code, said = finished(start(command, 2, PYTHONPATH=path))
    assert code == 8 and "the weights of process 1 are not those of process 0; nothing was saved" in said, said
    assert "start again" not in said and not list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_one_process_goes_on_with_a_run_of_two_and_says_what_is_lost(uninterrupted, tmp_path, capsys):
    import shutil

    from swell.runs.start import resume

    shutil.copytree(uninterrupted, tmp_path / "run")
    before = load_newest(tmp_path / "run" / "checkpoints", print)[1]
    summary = resume(tmp_path / "run", total_env_steps=2000)
    assert summary["status"] == "done" and summary["env_steps"] >= 2000
    assert "processes was 2 and is 1: the run continues, but not bit for bit" in " ".join(
        capsys.readouterr().out.split()
    )
    assert read_json(tmp_path / "run" / "config.json")["processes"] == 1
    after = load_newest(tmp_path / "run" / "checkpoints", print)[1]
    assert "processes" in before and "processes" not in after
    assert after["collector"]["observations"].shape[0] == 8
    assert summary["abandoned_episodes"] > 0


def test_what_cannot_be_shared_is_refused_in_one_line(tmp_path):
    code, said = finished(start(["train", "CartPole-v1", "--out", str(tmp_path / "run"), "--num-envs", "9"], 2))
    assert code == 2 and said.strip() == "swell: num_envs must be divisible by the 2 processes, got 9"
    assert not (tmp_path / "run").exists()


def test_wrong_options_of_processes_are_said_once_and_not_tried_again(tmp_path):
    command = ["train", "CartPole-v1", "--out", str(tmp_path / "run"), "--quiet", "--signal", "no_such:thing"]
    code, said = finished(start(command, 2))
    assert code == 2 and len(said.strip().splitlines()) == 1 and "no_such" in said
    assert not (tmp_path / "run").exists()


def test_a_run_that_diverged_is_not_tried_again(tmp_path):
    command = arguments_of(config_of(), tmp_path / "run")
    (tmp_path / "run").mkdir()
    code, said = finished(
        start([*command, "--learning-rate", "1e30", "--max-gradient-norm", "None"], 2, torchrun=True, restarts=1)
    )
    assert code == 1 and read_json(tmp_path / "run" / "summary.json")["status"] == "diverged"
    assert "has diverged; lower learning_rate" in said
