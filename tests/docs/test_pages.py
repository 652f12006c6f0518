"""The documentation names what the code has: options, presets, logged names, links."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from swell.config.options import options
from swell.config.run_config import RunConfig, SignalName
from swell.presets import PRESETS, make_config, preset_config
from swell.runs.logs import read_jsonl
from swell.runs.start import resume, run

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS]
CONFIGURATION = ROOT / "docs" / "configuration.md"
METRICS = ROOT / "docs" / "metrics.md"
SIGNALS = ROOT / "docs" / "signals.md"


def explained(text):
    """Names in the first column of the tables of a page, or of a part of it."""
    return set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))


def section(page, heading):
    """What stands under a heading of the second level."""
    (text,) = re.findall(
        rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    return text


SMALL = {"total_env_steps": 600, "num_envs": 4, "measure_every": 2, "max_episode_steps": 20, "threads": 1}
LEARNERS = {
    "pqn": {},
    "ppo": {"horizon": 32, "epochs": 2},
    "ppo-ewma": {"horizon": 32},
    "ppg-ewma": {"horizon": 32, "phase_env_steps": 128, "auxiliary_epochs": 1},
    "ess": {"horizon": 32, "epochs": 2},
}
"""A small run of each, ppg-ewma with auxiliary phases; ppg has no name of its own."""


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A run that measured, evaluated and was resumed, so that it wrote every file there is."""
    directory = tmp_path_factory.mktemp("docs") / "run"
    run(make_config("CartPole-v1", **SMALL, evaluation_episodes=2), directory, quiet=True)
    resume(directory, total_env_steps=900, quiet=True)
    return directory


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """What each learner writes into metrics.jsonl."""
    names = {}
    for algorithm, fields in LEARNERS.items():
        directory = tmp_path_factory.mktemp("logged") / algorithm
        config = make_config("CartPole-v1", algorithm=algorithm, **SMALL, **fields, evaluation_episodes=0)
        run(config, directory, quiet=True)
        names[algorithm] = {key for row in read_jsonl(directory / "metrics.jsonl") for key in row}
    return names


@pytest.mark.parametrize("algorithm", LEARNERS)
def test_every_logged_name_is_explained(logged, algorithm):
    assert "reading" in logged[algorithm]
    assert logged[algorithm] - explained(section(METRICS, "metrics.jsonl")) == set()


def test_every_explained_name_is_logged_by_some_learner(logged):
    assert explained(section(METRICS, "metrics.jsonl")) - set.union(*logged.values()) == set()


def test_every_evaluated_name_is_explained(finished_run):
    names = {key for row in read_jsonl(finished_run / "evaluations.jsonl") for key in row}
    assert names == explained(section(METRICS, "evaluations.jsonl"))


@pytest.mark.parametrize("name", get_args(SignalName))
def test_every_signal_is_explained(name):
    assert name in explained(SIGNALS.read_text())
    assert f"`{name}`" in METRICS.read_text()


@pytest.mark.parametrize("name", ["summary.json", "config.json"])
def test_every_stored_name_is_explained(finished_run, name):
    assert json.loads((finished_run / name).read_text()).keys() <= explained(section(METRICS, name))


OPTIONS = list(options().values())
SAID_AS = {True: "yes", False: "no", None: "none"}


def test_every_option_has_its_sentence():
    assert {option.name for option in OPTIONS} == {field.name for field in dataclasses.fields(RunConfig)}
    assert all(option.text.endswith((".", ".)")) for option in OPTIONS)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_table_of_options_says_what_the_source_says(option):
    (row,) = re.findall(rf"^\| `{option.name}` \|.*", CONFIGURATION.read_text(), flags=re.MULTILINE)
    default = "required" if option.name == "env" else option.default
    known = (default in (True, False, None) and not isinstance(default, int | float)) or isinstance(default, bool)
    said = SAID_AS[default] if known else default if default == "required" else f"`{default}`"
    assert row.split(" | ")[3] == said
    assert option.text in row


HOMES = {
    **dict.fromkeys(("classic", "pqn-classic", "ppo-classic", "ppo-ewma", "ppg", "ppg-ewma", "ess"), "CartPole-v1"),
    **dict.fromkeys(("minatar", "minatar-abs", "pqn-minatar", "ppo-minatar"), "MinAtar/Breakout-v1"),
    **dict.fromkeys(("paper", "release", "pqn-l", "pqn-xl", "pqn-atari", "ppo-atari"), "ALE/Pong-v5"),
    **dict.fromkeys(("ppo-mujoco", "ppo-abs", "ppo-abs-release"), "HalfCheetah-v5"),
    "ppo-procgen": "Procgen/CoinrunHard-v0",
}
"""The env on which the table shows a preset."""


@pytest.mark.parametrize("name", PRESETS)
def test_the_table_of_presets_has_their_values(name):
    (row,) = re.findall(rf"^\| `{name}` \|.*", CONFIGURATION.read_text(), flags=re.MULTILINE)
    env = HOMES[name]
    config, plain = preset_config(name, env), RunConfig(env=env)
    differing = {
        f"{field.name}={getattr(config, field.name)}"
        for field in dataclasses.fields(RunConfig)
        if field.name != "preset" and getattr(config, field.name) != getattr(plain, field.name)
    }
    assert set(re.findall(r"`(\w+=[^`]+)`", row)) == differing


def test_the_layout_names_every_file():
    layout = (ROOT / "docs" / "architecture.md").read_text()
    files = {path.name for path in (ROOT / "src" / "swell").rglob("*.py")} - {"__init__.py", "__main__.py"}
    assert {name for name in files if name not in layout} == set()


def anchors(page):
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in target or "results/" in target:
            continue
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


GONE = {"benchmarks/throughput.py", "benchmarks/experiment.py"}
"""What the changelog says was removed."""


def source_files_named_in(page):
    return set(re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_source_files_that_a_page_names_exist(page):
    homes = (ROOT, ROOT / "src" / "swell")
    missing = {name for name in source_files_named_in(page) if not any((home / name).exists() for home in homes)}
    assert missing - GONE == set()


def python_blocks():
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        yield from (pytest.param(block, id=f"{page.stem}-{number}") for number, block in enumerate(blocks))


@pytest.mark.parametrize("block", list(python_blocks()))
def test_code_in_the_pages_runs(block, tmp_path):
    """As it stands, but for the number of env steps, and in a process of its own, as a reader would."""
    short = re.sub(r"(total_env_steps|total_timesteps)=[\d_]+", r"\1=2_000", block)
    result = subprocess.run([sys.executable, "-c", short], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
