"""Presets of one's own in TOML: what they may hold, what is told of a wrong one, and that they come back as written."""

import dataclasses
import os

import pytest
from hypothesis import given, settings, strategies as st

from swell import presets
from swell.bench.plan import make_plan
from swell.cli import parse
from swell.config.run_config import RunConfig
from swell.errors import ConfigError, StorageError
from swell.preset_files import read_preset_file

FULL = """
preset = "ppo-classic"
about = "for people"
steps = 5_000
learning_rate = 3e-4
hidden = [32, 16]
target_kl = "none"
normalize_rewards = true
"""


@pytest.fixture
def file(tmp_path):
    """Writes a preset file and gives its name."""

    def write(text, name="own.toml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def faults_of(path, env="CartPole-v1"):
    with pytest.raises(ConfigError) as caught:
        presets.make_config(env, preset=path)
    assert all(path in fault and "\n" not in fault for fault in caught.value.faults)
    return [fault.removeprefix(f"{path}: ") for fault in caught.value.faults]


def test_an_env_has_its_own_options_however_it_is_written():
    names = ("LunarLander-v3", "lunarlander-v3", "LUNARLANDER")
    assert {presets.make_config(name).total_env_steps for name in names} == {500_000}
    assert presets.make_config("CartPole-v1").minibatches == 4


def test_a_file_changes_the_recipe_that_it_names(file):
    path = file(FULL)
    changes = {"learning_rate": 3e-4, "hidden": (32, 16), "normalize_rewards": True, "total_env_steps": 5000}
    expected = dataclasses.replace(presets.preset_config("ppo-classic", "CartPole-v1"), preset=path, **changes)
    assert presets.make_config("CartPole-v1", preset=path) == expected


@pytest.mark.parametrize(
    ("text", "algorithm", "recipe"),
    [("epochs = 3", "pqn", "classic"), ("epochs = 3", "ppo", "ppo-classic"), ('algorithm = "ess"', "pqn", "ess")],
)
def test_a_file_without_a_recipe_starts_from_the_usual_one(file, text, algorithm, recipe):
    path = file(text)
    config = presets.preset_config(path, "CartPole-v1", algorithm)
    usual = presets.preset_config(recipe, "CartPole-v1")
    assert config == dataclasses.replace(usual, preset=path, epochs=config.epochs)


def test_the_command_line_comes_before_the_file_and_the_file_before_the_recipe(file):
    config = parse(["train", "CartPole-v1", "--preset", file(FULL), "--learning-rate", "1e-5"]).config
    assert (config.algorithm, config.learning_rate, config.hidden) == ("ppo", 1e-5, (32, 16))


def test_every_fault_of_a_file_is_told_at_once(file):
    path = file(
        'preset = "papr"\nlerning_rate = 1\nepochs = "many"\nhidden = [1, 0]\nenv = "x"\n[batch]\nhorizon = 3\n'
    )
    unknown, *others = sorted(faults_of(path), key=lambda fault: "papr" not in fault)
    assert "did you mean paper?" in unknown
    assert sorted(others) == [
        "env has no place in a preset: name it on the command line",
        "epochs must be a whole number of at least 1, got 'many'",
        "hidden must be a list, each a whole number of at least 1, got (1, 0)",
        "unknown option batch; did you mean path?",
        "unknown option lerning_rate; did you mean learning_rate?",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("learning_rate = ", "it is not TOML"),
        ("epochs = 2\nepochs = 3", "it is not TOML"),
        ("epochs = 2.0", "epochs must be a whole number"),
        ("learning_rate = nan", "learning_rate must be a finite number"),
        ("learning_rate = 2020-01-01", "learning_rate must be a finite number"),
        ("algorithm = [[1]]", "algorithm must be one of pqn"),
        ("hidden = [{a = 1}]", "hidden must not be a table"),
        ('preset = ""', "preset must be a text"),
        ('preset = "other.toml"', "preset must be a recipe that `swell presets` lists"),
        ("steps = 5\ntotal_env_steps = 6", "total_env_steps is given twice"),
        ("seed = 3", "seed has no place in a preset"),
        ("clip_range = 0.3", "clip_range is not read by pqn"),
        ('scaler = "fixed"\nmax_horizon = 9', "max_horizon is not read by the fixed scaler"),
    ],
)
def test_a_wrong_file_is_told_in_a_line(file, text, told):
    (fault,) = faults_of(file(text))
    assert told in fault


def test_a_file_that_is_none_is_told_in_a_line(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.toml").write_bytes(b"#" * 2_000_000)
    os.mkfifo(tmp_path / "pipe.toml")
    told = {"absent": "no such file", "folder": "plain file", "pipe": "plain file", "bytes": "UTF-8", "large": "bytes"}
    for name, words in told.items():
        (fault,) = faults_of(str(tmp_path / f"{name}.toml"))
        assert words in fault


def test_a_benchmark_takes_files_as_variants_and_as_the_recipe_of_variants(file):
    path = file(FULL)
    texts = [path, f"grown={path}/adaptive:8-32", f"slow={path}+learning_rate=1e-5", "fixed:16"]
    runs = {run.variant.label: run.config for run in make_plan(["CartPole-v1"], texts, 1, preset=path)}
    assert {config.hidden for config in runs.values()} == {(32, 16)}
    assert (runs["grown"].scaler, runs["grown"].max_horizon) == ("adaptive", 32)
    assert (runs["slow"].learning_rate, runs[path].learning_rate) == (1e-5, 3e-4)
    assert (runs["fixed:16"].horizon, runs["fixed:16"].algorithm) == (16, "ppo")


@pytest.mark.parametrize("recipe", sorted(presets.PRESETS))
def test_a_config_that_is_written_comes_back(tmp_path, recipe):
    path = tmp_path / "deep" / "own.toml"
    config = presets.make_config("CartPole-v1", preset=recipe, max_gradient_norm=None, seed=9, total_env_steps=77)
    presets.write_preset(path, config, ["a remark"])
    again = presets.make_config("CartPole-v1", preset=str(path), seed=9)
    assert dataclasses.replace(again, preset=recipe) == config
    assert path.read_text().startswith(f'# a remark\npreset = "{recipe}"\n')
    presets.write_preset(tmp_path / "second.toml", again)
    assert (tmp_path / "second.toml").read_text() == path.read_text().removeprefix("# a remark\n")


@settings(max_examples=30, deadline=None)
@given(
    st.floats(1e-300, 1e300),
    st.lists(st.integers(1, 2**40), min_size=1, max_size=4),
    st.text(st.characters(blacklist_categories=["Cs"]), min_size=1),
)
def test_values_of_every_kind_come_back(tmp_path_factory, number, widths, text):
    path = tmp_path_factory.mktemp("preset") / "own.toml"
    text = "x" if text in ("none", "None") else text
    number = 0.5 if number == RunConfig.reward_scale else number
    values = {"reward_scale": number, "hidden": tuple(widths), "ramp_from": text}
    config = dataclasses.replace(presets.preset_config("classic", "CartPole-v1"), **values)
    presets.write_preset(path, config)
    assert read_preset_file(str(path)).options == values


def test_a_place_that_cannot_be_written_is_told_in_a_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        presets.write_preset(tmp_path / "file" / "own.toml", presets.make_config("CartPole-v1"))
