"""Every option of a run with its sentence, read off the settings: for the command line, its help and the docs."""

import ast
import dataclasses
import inspect
import textwrap
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, cast, get_args, get_type_hints

from swell.config.batch import BatchSettings, SignalSettings
from swell.config.learners import InvarianceSettings, LearnerSettings, NetworkSettings
from swell.config.run_config import RunConfig
from swell.config.runs import EnvSettings, EvaluationSettings, RunSettings
from swell.config.validation import Settings

COMMON = (
    *("env", "algorithm", "preset", "total_env_steps", "seed", "num_envs", "scaler", "horizon"),
    *("min_horizon", "max_horizon", "learning_rate", "evaluate_every", "target_return", "device"),
)
"""What most people set, shown first."""
OF_NETWORKS = ("architecture", "initial_log_std", "multi_skip_head", "normalize_observations")
"""Options of single algorithms that one looks for beside those of the network."""


GROUPS = ("common", "run", "environments", "batch", "signal", "learning", "network", "invariance", "saving")
OWNERS: dict[type[Settings], str] = {
    RunSettings: "run",
    EnvSettings: "environments",
    EvaluationSettings: "saving",
    BatchSettings: "batch",
    SignalSettings: "signal",
    LearnerSettings: "learning",
    NetworkSettings: "network",
    InvarianceSettings: "invariance",
    Settings: "learning",
}
"""The group of what a class declares, by the first of these that it is."""


@dataclass(frozen=True)
class Option:
    """One option: what it may be, what it is by default, and what it does."""

    name: str
    hint: Any
    default: Any
    text: str
    group: str


@cache
def options() -> dict[str, Option]:
    """By name: the env first, then group by group, general options before special ones."""
    hints = get_type_hints(RunConfig, include_extras=True)
    defaults = {field.name: field.default for field in dataclasses.fields(RunConfig)}
    kinds = [kind for kind in reversed(RunConfig.__mro__) if issubclass(kind, Settings)]
    found = [
        Option(name, hints[name], defaults[name], text, _group(kind, name))
        for kind in kinds
        for name, text in sentences(kind).items()
    ]
    return {option.name: option for option in sorted(found, key=_place)}


def _place(option: Option) -> tuple[int, int]:
    """Within a group the order of declaration, which sorting keeps; what is common has an order of its own."""
    return GROUPS.index(option.group), COMMON.index(option.name) if option.name in COMMON else 0


def _group(kind: type[Settings], name: str) -> str:
    if name in COMMON:
        return "common"
    if name in OF_NETWORKS:
        return "network"
    return next(group for owner, group in OWNERS.items() if issubclass(kind, owner))


def as_option(name: str, value: Any) -> Any:
    """A value that was read without knowing its option: `1e5` is a float, and means 100,000 where a count is asked."""
    if isinstance(value, tuple):
        return tuple(as_option(name, each) for each in cast("tuple[Any, ...]", value))
    is_count = name in options() and _is_whole(options()[name].hint)
    return int(value) if is_count and isinstance(value, float) and value.is_integer() else value


def _is_whole(hint: Any) -> bool:
    """Whether a hint, or what it has inside, is a whole number."""
    return hint is int or any(map(_is_whole, get_args(hint)))


def sentences(kind: type) -> dict[str, str]:
    """The text under each field that a class declares itself."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = " ".join(ast.literal_eval(text.value).split())
    return found
