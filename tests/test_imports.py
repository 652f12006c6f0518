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
GROUND = {"errors"}
"""May be imported from anywhere."""
ALLOWED = {
    "types": set(),
    "targets": set(),
    "losses": set(),
    "schedules": set(),
    "validation": set(),
    "contradictions": {"config"},
    "config": {"contradictions", "validation"},
    "distributions": set(),
    "invariance": set(),
    "hyperparameters": {"config", "invariance"},
    "scale": {"config", "hyperparameters", "invariance"},
    "tally": set(),
    "seeds": set(),
    "weight_average": set(),
    "phase_buffer": set(),
    "advantages": set(),
    "staleness": {"types"},
    "actor": {"distributions", "networks"},
    "policy_batch": {"actor", "advantages", "losses", "targets", "types"},
    "decoupled": {
        *("actor", "losses", "networks", "policy_batch", "policy_gradient", "tally", "types", "weight_average"),
    },
    "policy_gradient": {
        *("actor", "hyperparameters", "invariance", "micro_batches", "networks", "optimize", "policy_batch", "types"),
    },
    "interrupt": set(),
    "optimize": set(),
    "micro_batches": {"optimize"},
    "run_directory": set(),
    "networks": {"networks"},
    "envs": {"envs"},
    "presets": {"config", "envs", "validation"},
    "signals": {"", "distributions", "losses", "schedules", "types"},
    "noise_scale": {"types"},
    "scalers": {"types"},
    "system_memory": set(),
    "rehearsal": {"types"},
    "memory": {"config", "rehearsal", "scalers"},
    "env_groups": {"envs"},
    "episodes": {"envs"},
    "rollout_buffer": {"envs", "types"},
    "collect": {"env_groups", "envs", "episodes", "rollout_buffer", "staleness", "types"},
    "algorithms": {
        *("targets", "losses", "micro_batches", "networks", "optimize", "schedules", "types", "invariance", "tally"),
        *(
            "hyperparameters",
            "actor",
            "advantages",
            "policy_batch",
            "policy_gradient",
            "weight_average",
            "phase_buffer",
            "decoupled",
        ),
    },
    "loop": {"collect", "signals", "types"},
    "metrics": set(),
    "wording": {"metrics"},
    "panel": {"metrics", "wording"},
    "console": {"metrics", "panel", "wording"},
    "state_tree": set(),
    "checkpoint": {"run_directory", "state_tree"},
    "bench": {
        *(
            "",
            "bench",
            "build",
            "config",
            "console",
            "envs",
            "interrupt",
            "metrics",
            "presets",
            "run_directory",
            "runs",
        ),
        *("validation", "wording"),
    },
}


def imports_of(path):
    """Modules of swell that a file imports at any depth, without the leading `swell.`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "swell":
            found.add(node.module.removeprefix("swell").lstrip("."))
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("swell.") for alias in node.names if alias.name.startswith("swell.")}
    return found


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.split(".")[0] in ALLOWED))
def test_arrows_never_go_up(module):
    room = module.split(".")[0]
    others = {name.split(".")[0] for name in imports_of(MODULES[module])} - {""}
    assert others <= ALLOWED[room] | GROUND


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
    "statement", ["import swell", "import swell.cli, swell.scale", "from swell import RunConfig, presets"]
)
def test_the_command_line_starts_without_heavy_packages(statement):
    heavy = {"torch", "gymnasium", "numpy", "ale_py", "minatar", "tensorboard", "imageio"}
    assert not loaded_by(statement) & heavy


def test_optional_packages_are_not_imported_by_a_run():
    assert not loaded_by("import swell.runs, swell.envs") & {"ale_py", "minatar", "tensorboard", "imageio"}


@pytest.mark.parametrize("before", ["pass", "import swell.cli, swell.runs, swell.loop, swell.policy"])
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
