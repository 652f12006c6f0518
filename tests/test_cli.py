"""The command line: what a person types, what it prints, and how it exits."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from settings_checks import another_value, fields_for, foreign, listed, readers

from swell import __version__ as version, cli
from swell.cli import parse
from swell.cli.endings import named
from swell.cli.execution import next_commands
from swell.config.options import GROUPS, options
from swell.config.run_config import ALGORITHMS, SCALERS, SIGNALS
from swell.errors import ConfigError, SwellError
from swell.presets import make_config
from swell.runs.run_directory import write_json_atomic
from swell.runs.sealed import read_sealed, write_sealed
from swell.runs.start import resume

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


def test_a_directory_of_something_else_is_not_called_a_run(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("milk")
    result = swell("train", "CartPole-v1", *SMALL, "--out", "notes", cwd=tmp_path)
    assert result.returncode == 2
    assert "not empty" in last_line(result) and "no run" in last_line(result)
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["todo.txt"]


def test_suggested_commands_can_be_typed_as_they_are(tmp_path):
    (tmp_path / "my runs; rm").mkdir()
    (tmp_path / "my runs; rm" / "config.json").write_text("{}")
    result = swell("train", "CartPole-v1", *SMALL, "--out", "my runs; rm", cwd=tmp_path)
    assert "`swell resume 'my runs; rm'`" in last_line(result)
    assert "swell evaluate 'a b'" in next_commands("a b", 10)[0].replace(sys.argv[0], "swell")


def test_a_command_that_was_started_as_a_module_suggests_the_same(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/swell/__main__.py", "train"])
    assert next_commands("a", 10)[-1] == f"{sys.executable} -m swell presets"


@pytest.mark.parametrize("arguments", [["--out", ""], ["--out="], ["--out", "", "--quiet"]])
def test_an_empty_place_is_not_the_current_directory(tmp_path, arguments):
    result = swell("train", "CartPole-v1", *arguments, cwd=tmp_path)
    assert (result.returncode, last_line(result)) == (2, "swell: --out must name a place, got ''")
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_told(tmp_path):
    result = swell("--version", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"swell {version}\n")


@pytest.mark.parametrize(("typed", "meant"), [("1e5", 100_000), ("100_000", 100_000), ("2.5e6", 2_500_000)])
def test_whole_numbers_may_be_written_short(typed, meant):
    assert parse(["train", "CartPole-v1", "--steps", typed]).config.total_env_steps == meant
    assert parse(["train", "CartPole-v1", "--hidden", "64", typed]).config.hidden == (64, meant)
    assert parse(["bench", "CartPole-v1", "--steps", typed]).steps == meant


@pytest.mark.parametrize("typed", ["2.5", "1e-3", "1e999999999", "inf", "nan", "many"])
def test_what_is_no_whole_number_is_refused(typed, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["train", "CartPole-v1", "--steps", typed])
    assert ended.value.code == 2
    assert "--steps" in capsys.readouterr().err


def changed_run(root, name, change, write):
    """A copy of a run in which somebody edited config.json."""
    shutil.rmtree(root / name, ignore_errors=True)
    shutil.copytree(root / "run", root / name)
    described = read_sealed(root / name / "config.json")
    change(described)
    write(root / name / "config.json", described)
    return root / name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict.clear, "config must be of type dict; versions must be of type dict; threads must be of type int"),
        (lambda described: described.update(config=[]), "config must be of type dict"),
        (lambda described: described["config"].pop("env"), "missing 1 required positional argument: 'env'"),
        (lambda described: described.update(threads="two"), "threads must be of type int"),
        (lambda described: described.update(memory={"a": 1}), "unexpected keyword argument 'a'"),
        (lambda described: described["config"].update(hidden=[32]), "does not fit its config.json"),
        (lambda described: described["config"].update(num_envs=16), "does not fit its config.json"),
        (lambda described: described["config"].update(nope=3), "unknown option nope"),
        (lambda described: described["config"].update(learning_rate="a"), "learning_rate must be a finite number"),
    ],
    ids=["empty", "config", "env", "threads", "memory", "hidden", "num-envs", "unknown", "learning-rate"],
)
def test_a_config_that_was_edited_and_sealed_is_said_to_be(trained, change, words):
    root, _ = trained
    directory = changed_run(root, "edited", change, write_sealed)
    with pytest.raises(SwellError, match=re.escape(words)) as refused:
        resume(directory, total_env_steps=3000, quiet=True)
    assert refused.value.exit_code == 5
    assert "edited" in str(refused.value)


def test_a_config_that_was_edited_by_hand_is_restored_from_a_checkpoint_or_refused(trained):
    root, _ = trained
    edit = {"hidden": [32]}
    directory = changed_run(root, "edited", lambda described: described["config"].update(edit), write_json_atomic)
    result = swell("resume", "edited", "--quiet", cwd=root)
    assert result.returncode == 0, result.stderr
    assert "config.json was changed or damaged" in result.stderr and "restored" in result.stderr
    directory = changed_run(root, "edited", lambda described: described["config"].update(edit), write_json_atomic)
    shutil.rmtree(directory / "checkpoints")
    result = swell("resume", "edited", cwd=root)
    assert result.returncode == 5
    assert "edited/config.json was changed or damaged" in last_line(result)


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
        (["export", "nowhere"], ["nowhere", "no run"]),
        (["evaluate", "nowhere", "--seed", "-1"], ["seed must be at least 0", "-1"]),
        (["evaluate", "nowhere", "--video", "afile"], ["video must end in .mp4 or .gif", "afile"]),
        (["train", "../etc:Foo"], ["../etc", "no name of a module"]),
        (["train", ":CartPole-v1"], [":CartPole-v1", "no name of a module"]),
        (
            ["train", "CartPole-v1", "--preset", "ppo-abs", "--algorithm", "pqn"],
            ["algorithm must be ppo with preset ppo-abs, got pqn"],
        ),
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scaler", "fixed", "--horizon", "2000000000", "--steps", "1e12"], "horizon 2000000000"),
        (["--hidden", "1000000", "1000000"], "hidden 1000000 1000000 takes at least 15,258,8"),
        (["--num-envs", "1000000000"], "num_envs 1000000000 takes at least 190,735 MB"),
        (["--num-envs", "1e5", "--async-envs"], "num_envs 100000 takes at least 200,000 MB"),
        (["--num-envs", "2000000", "--memory-limit", "2000"], "num_envs 2000000 takes about"),
    ],
    ids=["horizon", "hidden", "num-envs", "workers", "tried"],
)
def test_what_cannot_fit_exits_6_before_it_is_built(tmp_path, arguments, words):
    result = swell("train", "CartPole-v1", *arguments, "--out", "run", cwd=tmp_path)
    assert result.returncode == 6, result.stderr
    assert words in last_line(result)
    assert not (tmp_path / "run").exists()


def test_a_horizon_beyond_the_run_is_not_made_room_for(tmp_path):
    result = swell("train", "CartPole-v1", *SMALL, "--max-horizon", "999999999999", "--out", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "no rollout gets to 999,999,999,999, as each env makes 188 steps in all" in result.stdout


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


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("train CartPole-v1", "stopped at once; `swell resume` goes on from the newest checkpoint"),
        ("resume run", "stopped at once; `swell resume` goes on from the newest checkpoint"),
        ("bench classic", "stopped at once; the same command goes on"),
        ("evaluate run", "stopped at once"),
        ("report run", "stopped at once"),
    ],
)
def test_a_second_ctrl_c_says_how_to_go_on_where_that_can_be(typed, line, monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["swell", *typed.split()])
    monkeypatch.setattr(cli, "execute", interrupted)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, capsys.readouterr().err) == (130, f"swell: {line}\n")


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_word(tmp_path):
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.path.insert(0, '.')"
    words = f"{begin}; from swell.__main__ import start; start()"  # a job in the background begins deaf to SIGINT
    (tmp_path / "tyro.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    result = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (-signal.SIGINT, "")


def test_a_closed_pipe_does_not_stop_a_run(tmp_path):
    command = " ".join([*SWELL, "train", "CartPole-v1", *SMALL, "--out", "run"])
    result = subprocess.run(f"{command} | head -n 1", shell=True, cwd=tmp_path, capture_output=True, check=True)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "done"
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == b""


@pytest.mark.parametrize(
    "arguments",
    [["presets"], ["--help"], ["train", "CartPole-v1", "--help"], ["evaluate", "run", "--episodes", "1"]],
    ids=lambda arguments: arguments[0],
)
def test_a_stream_without_unicode_gets_plain_characters(trained, arguments):
    root, _ = trained
    result = swell(*arguments, cwd=root, PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["presets"], ["--help"], ["train", "--help"]], ids=lambda each: each[0])
def test_output_that_cannot_be_written_exits_5(tmp_path, arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([*SWELL, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert result.returncode == 5
    assert result.stderr == "swell: cannot use the output: No space left on device\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_an_error_that_cannot_be_said_keeps_its_exit_code(tmp_path):
    with open("/dev/full", "w") as full:
        result = subprocess.run([*SWELL, "train"], stdout=full, stderr=full, cwd=tmp_path)
    assert result.returncode == 2


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the streams")
@pytest.mark.parametrize(("closed", "arguments", "exit_code"), [(">&-", "presets", 0), ("2>&-", "train", 2)])
def test_a_closed_stream_is_no_error(tmp_path, closed, arguments, exit_code):
    result = subprocess.run(f"{' '.join(SWELL)} {arguments} {closed}", shell=True, cwd=tmp_path, capture_output=True)
    assert result.returncode == exit_code, result.stderr
    assert b"Traceback" not in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory differ")
def test_memory_that_runs_out_while_torch_loads_exits_6(tmp_path):
    import resource

    def scarce():
        resource.setrlimit(resource.RLIMIT_AS, (300 * 2**20, 300 * 2**20))

    command = [*SWELL, "train", "CartPole-v1", *SMALL, "--out", "run"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, preexec_fn=scarce)
    assert result.returncode == 6, result.stderr
    assert "out of memory" in last_line(result)


def test_what_the_system_refuses_has_a_line_and_an_exit_code():
    refused = named(PermissionError(errno.EACCES, "Permission denied", "runs/one"))
    assert refused is not None and refused.exit_code == 5
    assert str(refused) == "cannot use 'runs/one': Permission denied"
    assert named(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")) is None


def unheard(*arguments, cwd):
    """The command with nobody at the other end of its stdout, not even at its start."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run([*SWELL, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, cwd=cwd)
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "arguments",
    [
        ["presets"],
        ["--help"],
        ["train", "CartPole-v1", "--help"],
        ["scale", "--from-batch", "64", "--to-batch", "32"],
        ["evaluate", "run", "--episodes", "1"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_reader_that_has_gone_ends_a_command_without_a_word(trained, arguments):
    root, _ = trained
    result = unheard(*arguments, cwd=root)
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["lines", "quiet"])
def test_a_run_that_nobody_listens_to_goes_on_and_ends_well(tmp_path, quiet):
    result = unheard("train", "CartPole-v1", *SMALL, *quiet, "--out", "run", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "done"
    result = unheard("resume", "run", "--steps", "2000", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["env_steps"] >= 2000


@pytest.mark.parametrize("lines", [1, 5])
def test_the_first_lines_of_the_presets_can_be_looked_at(tmp_path, lines):
    command = f"{' '.join(SWELL)} presets | head -n {lines}"
    result = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == lines


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


def as_arguments(name, value):
    """An option and its value as one types them."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, tuple) else (value,)
    return [f"--{flag}", *map(str, values)]


def refusal_of(arguments):
    with pytest.raises(ConfigError) as caught:
        parse(["train", "CartPole-v1", *arguments])
    assert caught.value.exit_code == 2
    return set(caught.value.faults)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_options_that_the_algorithm_does_not_read_are_refused_in_a_line_each(algorithm):
    names = foreign(ALGORITHMS, algorithm)
    values = {name: another_value(ALGORITHMS, name) for name in names}
    arguments = [argument for name in names for argument in as_arguments(name, values[name])]
    assert refusal_of(["--algorithm", algorithm, *arguments]) == {
        f"{name} is not read by {algorithm}, got {values[name]}; it belongs to {listed(readers(ALGORITHMS, name))}"
        for name in names
    }


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_they_are_refused_at_their_default_too(algorithm):
    names = foreign(ALGORITHMS, algorithm)
    arguments = [argument for name in names for argument in as_arguments(name, options()[name].default)]
    assert refusal_of(["--algorithm", algorithm, *arguments]) == {
        f"{name} is not read by {algorithm}; it belongs to {listed(readers(ALGORITHMS, name))}" for name in names
    }


@pytest.mark.parametrize(
    ("table", "key", "reader"),
    [
        *[(SCALERS, scaler, f"the {scaler} scaler") for scaler in SCALERS],
        *[(SIGNALS, signal, f"the signal {signal}") for signal in SIGNALS],
    ],
    ids=[*SCALERS, *SIGNALS],
)
def test_options_of_another_scaler_or_signal_are_refused_in_a_line_each(table, key, reader):
    names = foreign(table, key)
    chosen = [argument for name, value in fields_for(table, key).items() for argument in (f"--{name}", value)]
    values = {name: options()[name].default for name in names}
    values |= {name: another_value(table, name) for name in names if values[name] is None}
    arguments = [argument for name in names for argument in as_arguments(name, values[name])]
    assert refusal_of([*chosen, *arguments]) == {
        f"{name} is not read by {reader}; it belongs to {listed(readers(table, name))}" for name in names
    }


@pytest.mark.parametrize(
    "arguments", [["--clip-range", "0.2"], ["--clip-range=0.2"], ["--clip_range", "0.2"], ["--clip-range", "0.3"]]
)
def test_an_unread_option_ends_a_command_with_one_line_and_creates_nothing(tmp_path, arguments):
    result = swell("train", "CartPole-v1", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("swell: clip_range is not read by pqn")
    assert line.endswith("; it belongs to ppo, ppo-ewma, ppg and ppg-ewma")
    assert list(tmp_path.iterdir()) == []


def test_a_command_line_without_options_is_the_preset():
    assert parse(["train", "CartPole-v1"]).config == make_config("CartPole-v1", preset="classic")


def help_of(*arguments, cwd):
    result = swell("train", *arguments, cwd=cwd, COLUMNS="100")
    assert result.returncode == 0, result.stderr
    return result.stdout


def shown_in(text):
    """Names of the options of a run that a help page shows, in its order."""
    flags = [line.strip("│ ").split()[0].rstrip(",") for line in text.splitlines() if line.startswith("│ --")]
    names = [flag.removeprefix("--").replace("-", "_") for flag in flags]
    return [name for name in ("total_env_steps" if name == "steps" else name for name in names) if name in options()]


def groups_in(text):
    """Titles of the groups of a help page, in its order."""
    titles = [line.strip("╭─╮ ") for line in text.splitlines() if line.startswith("╭")]
    return [title.removesuffix(" options") for title in titles if title.endswith(" options")]


def test_help_shows_groups_and_the_common_options_first(tmp_path):
    text = help_of("CartPole-v1", "--help", cwd=tmp_path)
    assert groups_in(text) == list(GROUPS)
    names = shown_in(text)
    assert names[:3] == ["algorithm", "preset", "total_env_steps"]
    places = [GROUPS.index(options()[name].group) for name in names]
    assert all(one <= other for one, other in pairwise(places))
    assert options()["learning_rate"].text.split(".")[0][:40] in text


@pytest.mark.parametrize(
    ("arguments", "shown", "hidden"),
    [
        ([], {"epsilon_start", "min_horizon", "calm_reading"}, {"clip_range", "ramp_horizons", "noise_microbatches"}),
        (["--algorithm", "ppo"], {"clip_range", "target_kl"}, {"epsilon_start", "kl_penalty", "min_horizon"}),
        (["--algorithm", "ppg-ewma"], {"phase_env_steps", "proximal_decay"}, {"target_kl", "staleness_mode"}),
        (["--preset", "ppo-abs"], {"clip_range", "min_horizon", "probe_states"}, {"epsilon_start", "ramp_from"}),
        (["--scaler", "ramp"], {"ramp_horizons", "ramp_from"}, {"min_horizon", "calm_reading"}),
        (["--scaler=fixed"], {"horizon"}, {"min_horizon", "ramp_horizons", "calm_reading"}),
        (["--scaler", "noise-scale"], {"batch_per_noise_scale", "noise_averaging"}, {"calm_reading", "probe_states"}),
        (
            ["--scaler", "fixed", "--signal", "gradient_noise_scale"],
            {"noise_microbatches", "noise_averaging"},
            {"probe_states", "window", "action_tolerance"},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.parametrize("env", [["CartPole-v1"], []], ids=["env", "no-env"])
def test_help_shows_only_what_is_read(tmp_path, env, arguments, shown, hidden):
    names = set(shown_in(help_of(*env, *arguments, "--help", cwd=tmp_path)))
    assert shown <= names
    assert names.isdisjoint(hidden)


def test_help_all_shows_every_option(tmp_path):
    for arguments in (["CartPole-v1", "--help-all"], ["--algorithm", "ppo", "--help-all"]):
        text = help_of(*arguments, cwd=tmp_path)
        assert [*shown_in(text), "env"] == [*(name for name in options() if name != "env"), "env"]
        assert groups_in(text) == list(GROUPS)


OWN = """
import torch
from swell import HorizonScaler, PolicyChange


class MyScaler(HorizonScaler):
    def __init__(self, settings=None, *, num_envs=None, **fields):
        super().__init__(settings, num_envs=num_envs, **fields)
        self.heard = 0

    def horizon(self, progress):
        return self.settings.min_horizon + self.heard

    def adjust(self, reading):
        self.heard += 1

    def state_dict(self):
        return {"heard": self.heard}

    def load_state_dict(self, state):
        self.heard = state["heard"]


class MySignal(PolicyChange):
    name = "my_signal"

    def compare(self, before, after):
        return 2.0 + (before.greedy_actions != after.greedy_actions).float().mean().item()


def make_network(shape):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], 24), torch.nn.Tanh())


class Nothing:
    pass


class Almost(MySignal):
    watch = None


number = 3
"""


def read_rows(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algorithm", ["pqn", "ppo"])
def test_parts_of_ones_own_are_trained_resumed_and_evaluated(tmp_path, algorithm):
    (tmp_path / "my_module.py").write_text(OWN)
    own = ["--scaler", "my_module:MyScaler", "--signal", "my_module:MySignal", "--network", "my_module:make_network"]
    small = ["--steps", "600", "--num-envs", "4", "--evaluation-episodes", "2", "--algorithm", algorithm]
    batch = ["--measure-every", "2", "--min-horizon", "5", "--max-horizon", "64"]
    result = swell("train", "CartPole-v1", *small, *batch, *own, "--out", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "my_module:make_network" in result.stdout and "my_module:MyScaler" in result.stdout
    assert "my signal 2" in result.stdout
    rows = read_rows(tmp_path / "run")
    # One step longer after each reading, and there is one in every second iteration.
    assert [row["next_horizon"] for row in rows] == [5 + number // 2 for number in range(1, len(rows) + 1)]
    result = swell("resume", "run", "--steps", "1000", "--trust", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    resumed = read_rows(tmp_path / "run")
    assert len(resumed) > len(rows)
    assert [row["next_horizon"] for row in resumed] == [5 + number // 2 for number in range(1, len(resumed) + 1)]
    result = swell("evaluate", "run", "--episodes", 2, "--trust", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "over 2 greedy episodes" in result.stdout


def test_a_run_of_parts_of_ones_own_is_named_plainly(tmp_path):
    (tmp_path / "my_module.py").write_text(OWN)
    small = ["--steps", "200", "--num-envs", "4", "--evaluation-episodes", "0", "--quiet"]
    result = swell("train", "CartPole-v1", *small, "--scaler", "my_module:MyScaler", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    assert ":" not in directory.name and "MyScaler" in directory.name


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        *[
            (
                [f"--{option}", "nowhere.at_all:Thing"],
                f"{option} nowhere.at_all:Thing: cannot import nowhere.at_all (No module named 'nowhere')",
            )
            for option in ("scaler", "signal", "network")
        ],
        (
            ["--scaler", "my_module:MyScalr"],
            "scaler my_module:MyScalr: my_module has no MyScalr; did you mean MyScaler?",
        ),
        (
            ["--signal", "my_module:MySgnal"],
            "signal my_module:MySgnal: my_module has no MySgnal; did you mean MySignal?",
        ),
        (
            ["--network", "my_module:make_netwrk"],
            "network my_module:make_netwrk: my_module has no make_netwrk; did you mean make_network?",
        ),
        (
            ["--scaler", "my_module:Nothing"],
            "scaler my_module:Nothing must have plan(), adjust(), state_dict(), load_state_dict()",
        ),
        (
            ["--signal", "my_module:Nothing"],
            "signal my_module:Nothing must have watch(), state_dict(), load_state_dict()",
        ),
        (["--signal", "my_module:Almost"], "signal my_module:Almost must have watch(); "),
        (["--network", "my_module:Nothing"], "network my_module:Nothing must make a torch module"),
        (["--scaler", "my_module:number"], "scaler my_module:number must be a class or a function, got 3"),
        (["--signal", "my_module:number"], "signal my_module:number must be a class or a function, got 3"),
        (["--network", "my_module:number"], "network my_module:number must be a class or a function, got 3"),
        (["--scaler", "my_module"], "scaler must be one of adaptive, fixed, ramp, noise-scale, or module:name, got"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else None,
)
def test_a_part_of_ones_own_that_cannot_be_had_is_one_line(tmp_path, arguments, line):
    (tmp_path / "my_module.py").write_text(OWN)
    result = swell(
        "train", "CartPole-v1", *SMALL, *arguments, "--out", "run", cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1"
    )
    assert result.returncode == 2, result.stderr
    (said,) = result.stderr.splitlines()
    assert line in said
    assert [path.name for path in tmp_path.iterdir()] == ["my_module.py"]
