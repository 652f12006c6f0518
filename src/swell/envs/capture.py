"""The state of a Python object as plain data, and back, without pickle: attributes that hold numbers are its state.

What comes out are dicts with string keys, lists, strings, numbers, booleans, None and arrays. What cannot be told apart
by these alone (tuples, random generators, objects) is a dict with a `kind`. Attributes that hold anything else, such as
spaces, functions and windows, are left out; whether the rest is enough is for a test to say (resume_check.py).
"""

import math
import random
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

LARGEST_JSON_INT = 2**63
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
SKIPPED_PACKAGES = (
    "gymnasium.spaces",
    "gymnasium.envs.registration",
    "pygame",
    "mujoco",
    "logging",
    "threading",
    "jax",
)
DEPTH_LIMIT = 20


class NotPlainError(Exception):
    """A value that cannot be written as plain data, or plain data that no longer fits the object it came from."""


def capture(target: object) -> dict[str, Any]:
    """The state of an object: of its own attributes and of the objects in them."""
    return _capture_object(target, seen=set(), depth=0)


def restore(target: object, state: dict[str, Any]) -> None:
    """Puts a captured state back into an object that was made in the same way; objects in it stay the same ones."""
    for name, value in state["attributes"].items():
        existing = vars(target).get(name)
        vars(target)[name] = _restored(existing, value)


def _capture_object(target: object, seen: set[int], depth: int) -> dict[str, Any]:
    seen.add(id(target))
    attributes: dict[str, Any] = {}
    for name, value in vars(target).items():
        if name == "P" and type(target).__module__.startswith("gymnasium.envs.toy_text"):
            continue  # their transition table: thousands of numbers which never change
        with suppress(NotPlainError):
            attributes[name] = _capture_value(value, seen, depth + 1)
    return {"kind": "object", "attributes": attributes}


def _capture_value(value: Any, seen: set[int], depth: int) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise NotPlainError
        return value.copy()
    if isinstance(value, np.generic):
        return {"kind": "scalar", "type": value.dtype.str, "value": _capture_value(value.item(), seen, depth)}
    if isinstance(value, int | float):
        return _capture_number(value)
    if isinstance(value, list | tuple | deque | dict | set):
        return _capture_container(value, seen, depth)
    if isinstance(value, np.random.Generator | np.random.RandomState | random.Random):
        return _capture_generator(value, seen, depth)
    if id(value) in seen or depth > DEPTH_LIMIT:
        raise NotPlainError
    if _is_simulation(value):
        from swell.envs.mujoco import capture_simulation  # only now is it certain that MuJoCo is installed

        seen.add(id(value))
        return {"kind": "simulation", "fields": capture_simulation(value)}
    if not _is_plain_object(value):
        raise NotPlainError
    return _capture_object(value, seen, depth)


def _capture_number(value: float) -> Any:
    if type(value) not in (int, float):
        raise NotPlainError  # an enum, for one: its members are not ours to make
    if isinstance(value, float):
        return value if math.isfinite(value) else {"kind": "float", "text": repr(value)}
    return value if abs(value) < LARGEST_JSON_INT else {"kind": "int", "text": str(value)}


def _capture_container(value: Any, seen: set[int], depth: int) -> Any:
    if type(value) is dict:
        return {"kind": "dict", "items": [_capture_parts(item, seen, depth) for item in value.items()]}
    parts = _capture_parts(value, seen, depth)
    if type(value) is list:
        return parts
    if type(value) not in (tuple, deque, set):
        raise NotPlainError
    return {"kind": type(value).__name__, "items": parts, "maxlen": getattr(value, "maxlen", None)}


def _capture_parts(values: Iterable[Any], seen: set[int], depth: int) -> list[Any]:
    parts = [_capture_value(value, seen, depth + 1) for value in values]
    if any(isinstance(part, dict) and part["kind"] == "object" for part in parts):
        raise NotPlainError  # there may be more or fewer of them when the state comes back
    return parts


def _capture_generator(value: Any, seen: set[int], depth: int) -> dict[str, Any]:
    if isinstance(value, np.random.Generator):
        state: Any = value.bit_generator.state
    elif isinstance(value, np.random.RandomState):
        state = value.get_state(legacy=False)
    else:
        state = value.getstate()
    return {"kind": "generator", "type": type(value).__name__, "state": _capture_value(state, seen, depth + 1)}


def _is_simulation(value: object) -> bool:
    return type(value).__name__ == "MjData" and type(value).__module__.startswith("mujoco")


def _is_plain_object(value: object) -> bool:
    if isinstance(value, type | ModuleType | FunctionType | MethodType) or not hasattr(value, "__dict__"):
        return False
    return not type(value).__module__.startswith(SKIPPED_PACKAGES)


def _restored(existing: Any, value: Any) -> Any:
    """The value to put in the place of an existing one."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [_restored(None, part) for part in value]
    if not isinstance(value, dict):
        return value
    match value["kind"]:
        case "object":
            if not hasattr(existing, "__dict__"):
                raise NotPlainError("there is no object to take back the state of one")
            restore(existing, value)
            return existing
        case "simulation":
            if not _is_simulation(existing):
                raise NotPlainError("there is no simulation to take back the state of one")
            from swell.envs.mujoco import restore_simulation

            restore_simulation(existing, value["fields"])
            return existing
        case "generator":
            return _restored_generator(existing, value)
        case "float":
            return float(value["text"])
        case "int":
            return int(value["text"])
        case "scalar":
            return np.dtype(value["type"]).type(_restored(None, value["value"]))
        case "dict":
            return {_restored(None, key): _restored(None, part) for key, part in value["items"]}
        case "tuple":
            return tuple(_restored(None, part) for part in value["items"])
        case "set":
            return {_restored(None, part) for part in value["items"]}
        case "deque":
            return deque((_restored(None, part) for part in value["items"]), maxlen=value["maxlen"])
        case kind:
            raise ValueError(f"unknown kind of captured value: {kind}")


def _restored_generator(existing: Any, value: dict[str, Any]) -> Any:
    """The same generator where there is one: others may hold it too."""
    state = _restored(None, value["state"])
    match value["type"]:
        case "Generator":
            generator = existing or np.random.Generator(_bit_generator(state["bit_generator"]))
            generator.bit_generator.state = state
        case "RandomState":
            generator = existing or np.random.RandomState()
            generator.set_state(state)
        case _:
            generator = existing or random.Random()
            generator.setstate(state)
    return generator


def _bit_generator(name: str) -> np.random.BitGenerator:
    if name not in BIT_GENERATORS:
        raise ValueError(f"unknown bit generator: {name}")
    return getattr(np.random, name)()
