"""What the tests of settings share: every rule of a module met by an example, and values that differ from a default."""

import ast
import dataclasses
import inspect
from typing import get_args

from swell.config.options import options
from swell.config.run_config import ALGORITHMS, SCALERS, RunConfig
from swell.errors import ConfigError

CARTPOLE = "CartPole-v1"


def names_of(kind):
    return {field.name for field in dataclasses.fields(kind)}


def listed(words):
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def readers(table, name):
    """The algorithms, scalers or signals that read an option."""
    return [key for key, kind in table.items() if name in names_of(kind)]


def foreign(table, key):
    """Options that others of a kind read and this one does not, in the order of the help."""
    return [name for name in options() if readers(table, name) and key not in readers(table, name)]


def fields_for(table, key):
    """What makes a run one of this algorithm, scaler or signal, and as little else as possible."""
    if table is ALGORITHMS:
        return {"algorithm": key}
    if table is SCALERS:
        return {"scaler": key}
    return {"algorithm": "ppo", "scaler": "fixed", "signal": key}


def another_value(table, name):
    """A value of an option that is not its default and that a run which reads it takes."""
    default, fields = options()[name].default, fields_for(table, readers(table, name)[0])
    for value in _candidates(options()[name].hint, default):
        try:
            RunConfig(CARTPOLE, **{**fields, name: value})
        except ConfigError:
            continue
        return value
    raise AssertionError(f"no other value of {name} was found")


def _candidates(hint, default):
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, tuple):
        return [default[:1]]
    if isinstance(default, str):
        return [choice for choice in get_args(hint) if choice != default]
    if default is None:
        return [0.5, 3, "somewhere"]
    return [value for value in (default + 1, 0.5, 0.25, default / 2) if value != default]


def unchecked(**fields):
    """A config that nobody has looked at."""
    config = object.__new__(RunConfig)
    for field in dataclasses.fields(RunConfig):
        object.__setattr__(config, field.name, fields.get(field.name, field.default))
    return config


def rules_of(module):
    """The lines of a module on which a fault is yielded."""
    yields = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if type(node) is ast.Yield]
    return {node.lineno: range(node.lineno, node.end_lineno + 1) for node in yields}


def rules_met(module, examples):
    """Those of them that these fields of a config come to."""
    classes = [kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__]
    checks = [check for kind in classes for check in vars(kind).values() if inspect.isgeneratorfunction(check)]
    met = set()
    for fields in examples:
        for check in checks:
            faults = check(unchecked(env=CARTPOLE, **fields))
            lines = {faults.gi_frame.f_lineno for _ in faults}
            met |= {rule for rule, span in rules_of(module).items() if lines & set(span)}
    return met
