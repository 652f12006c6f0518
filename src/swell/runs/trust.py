"""What a run directory may have imported. It may come from somebody else, and its config.json names code.

Without trust, a name stands for nothing but a class of its kind in an installed package: neither for a module that lies
around in the current directory, nor for any function that would take what the directory hands it, such as `os:system`.
"""

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swell.config.imports import HANDED_IN
from swell.config.run_config import RunConfig
from swell.config.validation import is_import
from swell.errors import StorageError

TRUST_VARIABLE = "SWELL_TRUST"
CODE_OPTIONS = ("env", "wrappers", "network", "scaler", "signal")
"""Those that may name code."""


def require_trusted(
    config: RunConfig, directory: str | Path, trust: bool, options: Sequence[str] = CODE_OPTIONS
) -> None:
    """A StorageError where the config of a directory names code that nobody has installed, nor says to trust."""
    if not is_trusted(trust):
        for option in options:
            for name in names_in(getattr(config, option)):
                if fault := _fault(option, name):
                    raise refusal(directory, option, name, fault)


def named_by_directory(options: Sequence[str], make_env: object) -> list[str]:
    """Of these options, those that a directory decides: an env that was handed in is its caller's own."""
    return [option for option in options if option != "env" or make_env is None]


def is_trusted(trust: bool) -> bool:
    return trust or os.environ.get(TRUST_VARIABLE) == "1"


def refusal(directory: str | Path, option: str, name: str, fault: str) -> StorageError:
    return StorageError(
        f"{directory} names {option} {name}, and {fault}; if you trust whoever made that run, add --trust, "
        f"set {TRUST_VARIABLE}=1 or, in Python, trust=True"
    )


def names_in(value: Any) -> list[str]:
    """The names of code in an option; nothing that was handed in as an object is a name."""
    names = [value] if isinstance(value, str) else list(value)
    return [name for name in names if ":" in name and not name.startswith(HANDED_IN)]


def code_named_by(options: Mapping[str, Any]) -> list[str]:
    """All the names of code in the options of a run."""
    return [f"{option} {name}" for option in CODE_OPTIONS for name in names_in(options.get(option, ()))]


def place_of_foreign_module(module: str) -> str | None:
    """Where a module would come from, if that is no installed package; finding it imports installed ones at most."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        return "the standard library"
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        if name in sys.modules:  # by this program itself, before it looked into the directory
            continue
        try:
            spec = find_spec(name)
        except (ModuleNotFoundError, ValueError):
            return None  # the import itself says what is wrong
        foreign = [place for place in _places(spec) if not _is_installed(place)]
        if foreign:
            return foreign[0]
    return None


def _fault(option: str, name: str) -> str | None:
    """What keeps a name from being trusted."""
    module, _, attribute = name.partition(":")
    place = place_of_foreign_module(module)
    if place is not None:
        return f"the module {module} is of no installed package ({place})"
    try:
        found = getattr(import_module(module), attribute, None)
    except ImportError:
        return None  # told by whoever needs it
    if found is None or (option == "env" and (_is_registered(attribute) or not is_import(name))):
        return None
    return None if isinstance(found, type) and KINDS[option](found) else f"{attribute} is no class of that kind"


def _places(spec: ModuleSpec | None) -> list[str]:
    if spec is None:
        return []
    origin = [spec.origin] if spec.origin and spec.has_location else []
    return origin + list(spec.submodule_search_locations or [])


def _is_installed(place: str) -> bool:
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    paths = sysconfig.get_paths()
    roots = [paths["purelib"], paths["platlib"], *site.getsitepackages(), *user, str(Path(__file__).parents[1])]
    return any(Path(place).resolve().is_relative_to(Path(root).resolve()) for root in roots)


def _is_registered(name: str) -> bool:
    import gymnasium

    return name in gymnasium.registry


def _is_env(kind: type) -> bool:
    import gymnasium

    return issubclass(kind, gymnasium.Env)


def _is_network(kind: type) -> bool:
    from torch import nn

    return issubclass(kind, nn.Module)


def _has(*methods: str) -> Callable[[type], bool]:
    return lambda kind: all(callable(getattr(kind, method, None)) for method in methods)


KINDS: dict[str, Callable[[type], bool]] = {
    "env": _is_env,
    "wrappers": _is_env,
    "network": _is_network,
    "scaler": _has("plan", "adjust", "state_dict", "load_state_dict"),
    "signal": _has("watch", "state_dict", "load_state_dict"),
}
