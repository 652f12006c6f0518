"""Things of the user's own: named on the command line as `module:name`, handed in as objects in Python."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from swell.config.validation import did_you_mean, is_import
from swell.errors import ConfigError

HANDED_IN = "handed-in:"
"""How the name of something begins that no module has."""


class HandedIn(str):
    """The name of something that no module has, and the thing itself: a config can hold both, a file only the name."""

    make: Callable[..., Any]

    def __new__(cls, make: Callable[..., Any]) -> "HandedIn":
        name = super().__new__(cls, HANDED_IN + getattr(make, "__name__", type(make).__name__))
        name.make = make
        return name

    def __eq__(self, other: object) -> bool:
        """Two lambdas have one name, and are two things."""
        return isinstance(other, HandedIn) and self.make is other.make

    def __ne__(self, other: object) -> bool:
        return not self == other  # a text has one of its own

    def __hash__(self) -> int:
        return id(self.make)

    def __deepcopy__(self, _: object) -> "HandedIn":
        return self

    def __reduce__(self) -> tuple[type["HandedIn"], tuple[Callable[..., Any]]]:
        return HandedIn, (self.make,)


def name_of(thing: Callable[..., Any]) -> str:
    """`module:name` where that leads back to the thing, in another process too; else a name that carries it."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    path = f"{module}:{name}"
    is_there = getattr(sys.modules.get(str(module)), str(name), None) is thing
    return path if is_there and module != "__main__" and is_import(path) else HandedIn(thing)


def find_own_modules() -> None:
    """Lets `module:name` find what lies in the current directory, after everything that is installed."""
    if os.path.exists("."):  # it may have been deleted
        sys.path.append(os.getcwd())


def imported_maker(name: str, option: str) -> Callable[..., Any]:
    """The class or function that `module:name` stands for; where it cannot be had, one line that says why."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"{option} {name}: cannot import {module_name} ({error})") from error
    if not hasattr(module, attribute):
        hint = did_you_mean(attribute, [known for known in vars(module) if not known.startswith("_")])
        raise ConfigError(f"{option} {name}: {module_name} has no {attribute}{hint}")
    found = getattr(module, attribute)
    if not callable(found):
        raise ConfigError(f"{option} {name} must be a class or a function, got {found!r}")
    return found
