"""Checks values against their annotations, and says in words what they should have been."""

import difflib
import math
import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Between:
    """The allowed range of a number; open ends exclude the bound itself."""

    low: float
    high: float = math.inf
    low_open: bool = False

    def allows(self, value: float) -> bool:
        above = value > self.low if self.low_open else value >= self.low
        return above and value <= self.high

    def __str__(self) -> str:
        low = f"more than {self.low:g}" if self.low_open else f"at least {self.low:g}"
        return low if self.high == math.inf else f"{low} and at most {self.high:g}"


def unmet_fields(config: Any) -> dict[str, str]:
    """What each wrong field of a dataclass should have been."""
    hints = get_type_hints(type(config), include_extras=True)
    expected = {name: _unmet(getattr(config, name), hint) for name, hint in hints.items()}
    return {name: text for name, text in expected.items() if text}


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint such as `; did you mean paper?`, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _unmet(value: object, hint: Any) -> str | None:
    """What `value` should have been by its annotation, or None if it is that."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, *notes = get_args(hint)
        ranges = [note for note in notes if isinstance(note, Between)]
        wrong = _unmet(value, base)
        outside = wrong or not all(bounds.allows(cast(float, value)) for bounds in ranges)
        return _describe(base, ranges) if outside else None
    if origin in (Union, types.UnionType):
        unmet = [_unmet(value, option) for option in get_args(hint)]
        return None if None in unmet else " or ".join(text for text in unmet if text)
    if origin is Literal:
        return None if value in get_args(hint) else "one of " + ", ".join(map(str, get_args(hint)))
    if origin is tuple:
        wrong_item = not isinstance(value, tuple) or any(_unmet(item, get_args(hint)[0]) for item in value)
        return f"a list, each {_unmet(None, get_args(hint)[0])}" if wrong_item else None
    return None if _is_of(value, hint) else _describe(hint, [])


def _is_of(value: object, kind: Any) -> bool:
    if kind is float:
        return _is_number(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str) and value != ""
    return isinstance(value, kind)


def _describe(kind: Any, ranges: list[Between]) -> str:
    while get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        ranges = [*[note for note in notes if isinstance(note, Between)], *ranges]
    words = {int: "a whole number", float: "a finite number", str: "a text", bool: "true or false", type(None): "none"}
    return " of ".join([words[kind], *map(str, ranges)])
