"""Things of the user's own, named on the command line as `module:name`."""

import importlib
from typing import Any

from swell.config.validation import did_you_mean
from swell.errors import ConfigError


def imported(name: str, option: str) -> Any:
    """What `module:name` stands for; where it cannot be had, one line that says what is missing."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"{option} {name}: cannot import {module_name} ({error})") from error
    if not hasattr(module, attribute):
        hint = did_you_mean(attribute, [known for known in vars(module) if not known.startswith("_")])
        raise ConfigError(f"{option} {name}: {module_name} has no {attribute}{hint}")
    return getattr(module, attribute)
