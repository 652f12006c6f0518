"""A run directory may come from somebody else: it has nothing imported that its user neither installed nor trusts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kill import small_config

import swell
from swell.errors import StorageError
from swell.runs.sealed import read_sealed, write_sealed
from swell.runs.start import run
from swell.runs.trust import place_of_foreign_module

SOURCE = Path(swell.__file__).parents[1]
EVIL = """
from pathlib import Path
Path(__file__).with_name("canary").touch()
import gymnasium
from torch import nn
gymnasium.register("Evil-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")

class Net(nn.Flatten): ...
class Parts:
    def __init__(self, *_, **__): ...
def wrap(env): return env
"""
SHORT = {"total_env_steps": 400, "checkpoint_every": 200, "evaluate_every": 0, "evaluation_episodes": 0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trust") / "run"
    run(small_config(**SHORT, path="autograd"), directory, quiet=True)
    return directory


def swell_in(where: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **variables}
    environment.pop("SWELL_TRUST", None) if "SWELL_TRUST" not in variables else None
    command = [sys.executable, "-m", "swell", *arguments]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)


def copy_naming(trained: Path, where: Path, **options: object) -> Path:
    """A copy of a run whose config.json names other code, sealed as its maker could."""
    (where / "run" / "checkpoints").mkdir(parents=True)
    for path in trained.rglob("*"):
        if path.is_file() and path.name != "summary.json":
            (where / "run" / path.relative_to(trained)).parent.mkdir(parents=True, exist_ok=True)
            (where / "run" / path.relative_to(trained)).write_bytes(path.read_bytes())
    described = read_sealed(trained / "config.json")
    described["config"].update(options)
    if "env" in options:
        del described["spaces"]
    write_sealed(where / "run" / "config.json", described)
    (where / "helpers.py").write_text(EVIL)
    return where / "run"


NAMES = {
    "env": {"env": "helpers:Evil-v0"},
    "wrapper": {"wrappers": ["helpers:wrap"]},
    "network": {"network": "helpers:Net"},
    "scaler": {"scaler": "helpers:Parts"},
    "signal": {"signal": "helpers:Parts", "scaler": "fixed"},
    "package": {"env": "folder.inner:Evil-v0"},
    "standard library": {"env": "os:system", "env_kwargs": ["command=touch canary"]},
    "function": {"env": "gymnasium:make", "env_kwargs": ["id=helpers:Evil-v0"]},
    "own function": {"env": "swell:load_policy", "env_kwargs": ["directory=run", "trust=true"]},
    "class of another kind": {"network": "gymnasium:Env"},
}


@pytest.mark.parametrize("options", NAMES.values(), ids=NAMES)
def test_what_a_directory_names_is_not_run(trained, tmp_path, monkeypatch, options):
    directory = copy_naming(trained, tmp_path, **options)
    (tmp_path / "folder").mkdir()  # a namespace package
    (tmp_path / "folder" / "inner.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)  # as a script's own directory is: before all that is installed
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SWELL_TRUST", raising=False)
    acts = [lambda: swell.resume(directory, quiet=True)]
    if not {"scaler", "signal"} & set(options):
        acts.append(lambda: swell.evaluate(directory, episodes=1))
    for act in acts:
        with pytest.raises(StorageError, match="if you trust whoever made that run, add --trust") as caught:
            act()
        (name,) = [text for text in options.values() if ":" in str(text) and "=" not in str(text)]
        assert (name if isinstance(name, str) else name[0]) in str(caught.value) and "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("canary")) and "helpers" not in sys.modules


def test_the_commands_name_the_module_and_the_way_out(trained, tmp_path):
    copy_naming(trained, tmp_path, env="helpers:Evil-v0")
    evaluate, export = ["evaluate", "run", "--episodes", "1"], ["export", "run", "--format", "state-dict"]
    for command in (["resume", "run"], evaluate, export):
        done = swell_in(tmp_path, *command)
        assert done.returncode == 5 and done.stderr.count("\n") == 1, done.stderr
        assert "helpers" in done.stderr and "--trust" in done.stderr and "SWELL_TRUST=1" in done.stderr
    assert swell_in(tmp_path, "report", "run").returncode == 0
    assert not (tmp_path / "canary").exists()
    trusting = swell_in(tmp_path, *evaluate, "--trust")
    assert trusting.returncode == 0 and (tmp_path / "canary").exists(), trusting.stderr
    assert swell_in(tmp_path, *evaluate, SWELL_TRUST="1").returncode == 0


def test_what_is_typed_is_trusted(tmp_path):
    (tmp_path / "helpers.py").write_text(EVIL)
    options = [
        "--steps",
        "100",
        "--num-envs",
        "4",
        "--min-horizon",
        "4",
        "--max-horizon",
        "8",
        "--evaluation-episodes",
        "0",
        "--quiet",
    ]
    done = swell_in(tmp_path, "train", "helpers:Evil-v0", *options, "--out", "run")
    assert done.returncode == 0, done.stderr


def test_a_file_in_the_current_directory_takes_no_installed_package_s_place(trained, tmp_path):
    for name in ("tyro", "gymnasium", "torch", "minatar"):
        (tmp_path / f"{name}.py").write_text(EVIL)
    assert swell_in(tmp_path, "presets").returncode == 0
    copy_naming(trained, tmp_path)
    assert swell_in(tmp_path, "evaluate", "run", "--episodes", "1").returncode == 0
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("module", ["gymnasium", "gymnasium.envs.classic_control", "swell.envs", "ale_py", "no_such"])
def test_installed_packages_are_no_strangers(module):
    assert place_of_foreign_module(module) is None


def test_an_env_class_of_an_installed_package_needs_no_trust(trained, tmp_path):
    directory = copy_naming(trained, tmp_path, env="gymnasium.envs.classic_control:CartPoleEnv")
    assert swell.evaluate(directory, episodes=1)["episodes"] == 1
