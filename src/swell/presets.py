"""Which preset a run starts from, and what of it is changed: recipes by name, the usual one of an env, and files."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from swell.config.own_envs import env_name
from swell.config.run_config import ALGORITHMS, RunConfig, changed
from swell.config.runs import Algorithm
from swell.config.validation import did_you_mean
from swell.envs.ids import env_family
from swell.errors import ConfigError
from swell.preset_files import NOT_IN_FILES, is_preset_file, read_preset_file, write_preset_file
from swell.recipes import PRESETS, policies, pqn


def preset_config(name: str, env: str, algorithm: Algorithm = "pqn") -> RunConfig:
    """The config of a preset, or of a preset file; `auto` goes by the algorithm and the kind of env."""
    if name == "auto":
        return _usual_preset(env, algorithm)
    if is_preset_file(name):
        return _config_of_file(name, env, algorithm)
    if name not in PRESETS:
        raise ConfigError(_unknown(name))
    return PRESETS[name](env)


def _unknown(name: str) -> str:
    lists = "`swell presets` lists them; a file of your own ends in .toml"
    return f"unknown preset {name}{did_you_mean(name, list(PRESETS))} ({lists})"


def write_preset(path: str | Path, config: RunConfig, remarks: Sequence[str] = ()) -> None:
    """Writes a preset file that makes this config again, whatever the seed: the recipe it came from, and what differs.

    `remarks` become comments on top of it.
    """
    recipe = read_preset_file(config.preset).recipe if is_preset_file(config.preset) else config.preset
    base = preset_config(recipe, config.env, config.algorithm)
    names = [field.name for field in fields(RunConfig) if field.name not in (*NOT_IN_FILES, "preset")]
    differences = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(base, name)}
    write_preset_file(Path(path), base.preset, differences, remarks)


def describe_presets() -> list[tuple[str, str]]:
    """Name and one line for each preset."""
    return [(name, (preset.__doc__ or "").splitlines()[0]) for name, preset in PRESETS.items()]


def make_config(env: str | Callable[..., Any], **overrides: Any) -> RunConfig:
    """The preset of an env and an algorithm, or the one named by `preset`, with some fields changed.

    A function or a class that makes an env stands for it; one of a module goes by `module:name`.
    """
    preset = preset_config(overrides.pop("preset", "auto"), env_name(env), overrides.get("algorithm", "pqn"))
    if "algorithm" in overrides:
        require_agreement(preset, overrides["algorithm"])
    return changed(preset, **overrides)


def require_agreement(preset: RunConfig, algorithm: str) -> None:
    """A ConfigError where the algorithm that is asked for is not the one that a preset has its numbers for."""
    if algorithm in ALGORITHMS and algorithm != preset.algorithm:
        raise ConfigError(
            f"algorithm must be {preset.algorithm} with preset {preset.preset}, got {algorithm}; "
            "name one of the two, and it sets the other"
        )


def _config_of_file(path: str, env: str, algorithm: Algorithm) -> RunConfig:
    """The recipe that a file starts from with the options that it gives; every fault is told, with the file's name."""
    file = read_preset_file(path)
    known = file.recipe == "auto" or file.recipe in PRESETS
    faults = [*file.faults, *([] if known else [_unknown(file.recipe)])]
    named = file.options.get("algorithm", algorithm)
    base = preset_config(file.recipe if known else "auto", env, named if named in ALGORITHMS else algorithm)
    try:
        config = changed(base, **file.options)
    except ConfigError as error:
        faults += error.faults
        config = base
    if faults:
        raise ConfigError(*(f"{path}: {fault}" for fault in faults))
    return replace(config, preset=path)


def _usual_preset(env: str, algorithm: Algorithm) -> RunConfig:
    if algorithm == "pqn":
        usual = {"atari": pqn.paper, "minatar": pqn.minatar, "procgen": pqn.paper}
        return usual.get(env_family(env), pqn.classic)(env)
    if algorithm == "ppo":
        return policies.plain_ppo(env)
    if algorithm not in PRESETS:
        raise ConfigError(f"unknown algorithm {algorithm}{did_you_mean(algorithm, list(PRESETS))}")
    return PRESETS[algorithm](env)
