"""Who may import whom: arrows never go up, and heavy packages wait until they are needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "swell"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
ALLOWED = {
    "errors": set(),
    "types": set(),
    "ranks": {"errors"},
    "config": {"errors"},
    "envs": {"config", "errors", "kernels"},
    "batch": {"config", "errors", "ranks", "types"},
    "networks": {"config", "errors", "ranks", "types"},
    "kernels": {"errors", "networks", "ranks"},
    "learning": {"batch", "config", "errors", "kernels", "networks", "ranks", "types"},
    "algorithms": {"batch", "config", "errors", "kernels", "learning", "networks", "ranks", "types"},
    "collect": {"envs", "errors", "kernels", "ranks", "types"},
    "measurement": {"config", "learning", "ranks", "types"},
    "loop": {"collect", "measurement", "types"},
    "preset_files": {"config", "errors"},
    "recipes": {"config", "envs"},
    "presets": {"config", "envs", "errors", "preset_files", "recipes"},
    "memory": {"batch", "config", "envs", "errors", "measurement", "ranks", "types"},
    "display": {"envs", "errors"},
    "runs": {
        *("algorithms", "batch", "collect", "config", "display", "envs", "errors", "kernels", "learning", "loop"),
        "measurement",
        *("memory", "networks", "presets", "ranks", "types"),
    },
    "report": {"", "config", "display", "envs", "errors", "presets", "runs"},
    "bench": {"", "batch", "config", "display", "envs", "errors", "preset_files", "presets", "report", "runs"},
    "sweep": {"bench", "config", "display", "envs", "errors", "presets", "runs"},
    "llm": {"batch", "config", "display", "errors", "learning", "memory", "report", "runs"},
    "plugins": {"batch", "errors", "learning", "types"},
    "cli": {"", "batch", "bench", "config", "display", "errors", "llm", "presets", "ranks", "report", "runs", "sweep"},
}
"""A row a package: what it may import of ours, beside itself."""


def imports_of(path):
    """Modules of swell that a file imports at any depth, without the leading `swell.`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "swell":
            module = node.module.removeprefix("swell").lstrip(".")
            found |= {module} if module else {alias.name if alias.name in MODULES else "" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("swell.") for alias in node.names if alias.name.startswith("swell.")}
    return found


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_arrows_never_go_up(package):
    for module, path in MODULES.items():
        if module.split(".")[0] == package:
            assert {name.split(".")[0] for name in imports_of(path)} - {package} <= ALLOWED[package], module


def test_every_package_has_its_row():
    assert {module.split(".")[0] for module in MODULES} - {"", "__init__", "__main__"} == set(ALLOWED)


def test_algorithms_never_import_each_other():
    for path in (SOURCE / "algorithms").glob("*.py"):
        assert not [name for name in imports_of(path) if name.startswith("algorithms")]


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.startswith("envs")))
def test_environments_do_without_torch(module):
    roots = {
        name.name.split(".")[0] if isinstance(node, ast.Import) else (node.module or "").split(".")[0]
        for node in ast.walk(ast.parse(MODULES[module].read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert "torch" not in roots


def loaded_by(statement):
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import swell",
        "import swell.cli, swell.config.options",
        "from swell import RunConfig, presets",
        "import swell.llm.command; swell.llm.command.main([])",
    ],
)
def test_the_command_line_starts_without_heavy_packages(statement):
    heavy = {"torch", "gymnasium", "numpy", "ale_py", "minatar", "tensorboard", "imageio", "trl", "transformers"}
    assert not loaded_by(statement) & heavy


def test_what_is_refused_first_is_refused_without_torch():
    assert "torch" not in loaded_by("import swell.runs.first_checks")


def test_optional_packages_are_not_imported_by_a_run():
    assert not loaded_by("import swell.runs.start, swell.envs") & {"ale_py", "minatar", "tensorboard", "imageio"}


@pytest.mark.parametrize("before", ["pass", "import swell.cli, swell.runs.start, swell.loop, swell.runs.agent"])
def test_public_names_are_what_they_say_whatever_was_imported_before(before):
    code = f"""
{before}
import inspect, swell
from swell import *
for name in swell.__all__:
    assert inspect.ismodule(getattr(swell, name)) == (name == "presets"), name
assert callable(run) and callable(train)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
