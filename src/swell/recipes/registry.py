"""What a preset is: a function from an env id to a RunConfig, known by its name."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from swell.config.run_config import RunConfig

Preset = Callable[[str], RunConfig]
PRESETS: dict[str, Preset] = {}


def recipe(make: Preset) -> Preset:
    """Makes a function a preset, under its own name, which the configs it makes carry."""
    name = make.__name__.replace("_", "-")

    @wraps(make)
    def named(env: str) -> RunConfig:
        return replace(make(env), preset=name)

    PRESETS[name] = named
    return named


def options_of(env: str, table: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What a table has for an env, whatever its version and case."""
    by_name = {name.lower(): options for name, options in table.items()}
    return by_name.get(env.lower().partition("-v")[0], {})
