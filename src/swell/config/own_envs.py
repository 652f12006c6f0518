"""Envs of the user's own as settings hold them: names of functions, and arguments as words."""

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from swell.config.imports import name_of
from swell.errors import ConfigError


def env_name(env: object) -> str:
    """An id as it is; the name of a function or a class that makes an env."""
    if isinstance(env, str):
        return env
    if callable(env):
        return name_of(env)
    kind = type(env).__name__
    if hasattr(env, "step") and hasattr(env, "reset"):
        raise ConfigError(
            f"env must be made anew for each of num_envs, got one {kind}; hand in a function that makes it"
        )
    raise ConfigError(f"env must be an id, or a function or a class that makes one, got {env!r:.80}")


def wrapper_names(wrappers: object) -> object:
    """Each as it is or by its name; what is no sequence is for the check of types to refuse."""
    if not isinstance(wrappers, list | tuple):
        return wrappers
    return tuple(name_of(each) if callable(each) else each for each in cast("list[Any]", wrappers))


def kwargs_words(kwargs: object) -> object:
    """A dict as the words that a command line would have: `{"gravity": -5.0}` is `gravity=-5.0`."""
    if not isinstance(kwargs, Mapping):
        return tuple(cast("list[Any]", kwargs)) if isinstance(kwargs, list) else kwargs
    return tuple(_word(str(key), value) for key, value in cast("Mapping[Any, Any]", kwargs).items())


def kwargs_of(words: Iterable[str]) -> dict[str, Any]:
    """The arguments that `key=value` words stand for: numbers, booleans, none, lists; anything else is a text."""
    pairs = (word.partition("=") for word in words)
    return {key: _value(text) for key, _, text in pairs}


def texts_of(words: object) -> list[str]:
    """The texts in a tuple; what is neither is a fault by itself and must not raise here."""
    return [word for word in words if isinstance(word, str)] if isinstance(words, tuple) else []


def is_assignment(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return equals == "=" and key.isidentifier()


def _word(key: str, value: Any) -> str:
    if isinstance(value, str) and _value(value) == value:
        return f"{key}={value}"
    try:
        return f"{key}={json.dumps(value)}"
    except TypeError:
        raise ConfigError(
            f"env_kwargs must be numbers, texts, lists or dicts, got {key} = {value!r:.60}; "
            "hand in a function that makes the env with it"
        ) from None


def _value(text: str) -> Any:
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, RecursionError):
            continue
    return {"none": None}.get(text.lower(), text)
