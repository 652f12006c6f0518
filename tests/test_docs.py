"""The documentation names what the code has: options, presets, logged names, links."""

import ast
import dataclasses
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from swell.config import RunConfig
from swell.presets import PRESETS, make_config, preset_config
from swell.run_directory import read_jsonl
from swell.runs import resume, run

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS]
CONFIGURATION = ROOT / "docs" / "configuration.md"
METRICS = ROOT / "docs" / "metrics.md"


def explained(page):
    """Names in the first column of a page's tables."""
    return set(re.findall(r"^\| `(\w+)` \|", page.read_text(), flags=re.MULTILINE))


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A run that measured, evaluated and was resumed, so that it wrote every name there is."""
    directory = tmp_path_factory.mktemp("docs") / "run"
    config = make_config(
        "CartPole-v1",
        total_env_steps=600,
        num_envs=4,
        measure_every=2,
        max_episode_steps=20,
        evaluation_episodes=2,
        threads=1,
    )
    run(config, directory, quiet=True)
    resume(directory, total_env_steps=900, quiet=True)
    return directory


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl"])
def test_every_logged_name_is_explained(finished_run, name):
    logged = {key for row in read_jsonl(finished_run / name) for key in row}
    assert logged
    assert logged <= explained(METRICS)


@pytest.mark.parametrize("name", ["summary.json", "config.json"])
def test_every_stored_name_is_explained(finished_run, name):
    assert json.loads((finished_run / name).read_text()).keys() <= explained(METRICS)


def options_in_source():
    """Name, default as written and explanation of each field, from the source of RunConfig."""
    module = ast.parse((ROOT / "src" / "swell" / "config.py").read_text())
    (config,) = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "RunConfig"]
    for field, text in pairwise(config.body):
        if isinstance(field, ast.AnnAssign):
            default = "required" if field.value is None else str(ast.literal_eval(field.value))
            yield field.target.id, default, " ".join(ast.literal_eval(text.value).split())


OPTIONS = list(options_in_source())
SAID_AS = {"True": "yes", "False": "no", "None": "none", "required": "required"}


def test_every_option_is_found_in_the_source():
    assert [name for name, _, _ in OPTIONS] == [field.name for field in dataclasses.fields(RunConfig)]


@pytest.mark.parametrize(("name", "default", "sentence"), OPTIONS, ids=[name for name, _, _ in OPTIONS])
def test_the_table_of_options_says_what_the_source_says(name, default, sentence):
    (row,) = re.findall(rf"^\| `{name}` \|.*", CONFIGURATION.read_text(), flags=re.MULTILINE)
    assert row.split(" | ")[3] == SAID_AS.get(default, f"`{default}`")
    assert sentence in row


@pytest.mark.parametrize("name", PRESETS)
def test_the_table_of_presets_has_their_values(name):
    (row,) = re.findall(rf"^\| `{name}` \|.*", CONFIGURATION.read_text(), flags=re.MULTILINE)
    home = {"classic": "CartPole-v1", "minatar": "MinAtar/Breakout-v1"}
    env = home.get(name.removeprefix("pqn-"), "ALE/Pong-v5")
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_in_the_pages_imports_what_exists(page):
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        for statement in ast.walk(ast.parse(block)):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("swell"):
                scope: dict[str, object] = {}
                exec(ast.unparse(statement), scope)
                modules = [name.name for name in statement.names if type(scope[name.name]).__name__ == "module"]
                assert set(modules) <= {"presets"}, f"{modules}: modules where the page means functions"
