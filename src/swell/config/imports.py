"""Things of the user's own, named on the command line as `module:name`."""

import importlib
from collections.abc import Callable
from typing import Any

from swell.config.validation import did_you_mean
from swell.errors import ConfigError


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
