"""What all settings share: they check themselves once, list every fault they find, and say in words what was wrong."""

import difflib
import math
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from swell.errors import ConfigError

Fault = tuple[tuple[str, ...], str]
"""The options that a fault is about, and the fault in one line."""


@dataclass(frozen=True)
class Settings:
    """The options of one component. Made by hand or as a part of RunConfig, they are checked once."""

    def __post_init__(self) -> None:
        self.check(type(self))

    def contradictions(self) -> Iterator[Fault]:
        """Options of this class that are right each on its own and wrong together."""
        yield from ()

    def check(self, *kinds: "type[Settings]", also: Iterable[Fault] = ()) -> None:
        """Raises one ConfigError with every fault: of single values, of what these kinds say of them, and `also`."""
        unmet = unmet_fields(self)
        faults = [f"{name} must be {expected}, got {getattr(self, name)!r}" for name, expected in unmet.items()]
        bases = dict.fromkeys(base for kind in kinds for base in kind.__mro__ if issubclass(base, Settings))
        # Each class speaks for its own options alone, so none needs to call its parents.
        own = [base.contradictions(self) for base in bases if "contradictions" in vars(base)]
        faults += [fault for found in (*own, also) for names, fault in found if not unmet.keys() & set(names)]
        if faults:
            raise ConfigError(*faults)


Kind = TypeVar("Kind", bound=Settings)


def with_fields(kind: type[Kind], settings: Kind | None, changes: Mapping[str, Any]) -> Kind:
    """`settings`, or the defaults of their kind, with some fields changed; an unknown name is a fault with a hint."""
    known = [field.name for field in fields(kind)]
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise ConfigError(*(f"unknown option {name}{did_you_mean(name, known)}" for name in unknown))
    return kind(**changes) if settings is None else replace(settings, **changes)


def is_more(first: object, second: object) -> bool:
    """Of wrong types too, which are faults by themselves and must not raise here."""
    return isinstance(first, int | float) and isinstance(second, int | float) and first > second


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


class ChoiceOrImport:
    """One of the names that Swell knows, or `module:name` for something of the user's own."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def allows(self, value: object) -> bool:
        return isinstance(value, str) and (value in self.choices or is_import(value))

    def __str__(self) -> str:
        return f"one of {', '.join(self.choices)}, or module:name"


def whole_number(text: str) -> int:
    """`100_000`, `1e5` and `2.5e6` as they are meant; ValueError for what is no whole number."""
    with suppress(ValueError):
        return int(text)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no number") from None
    if not number.is_finite() or number.adjusted() > _MOST_DIGITS or number != number.to_integral_value():
        raise ValueError(f"{text!r} is no whole number")
    return int(number)


_MOST_DIGITS = 30
"""Of a number with an exponent: `1e999999999` would take forever to write out."""


def is_import(name: str) -> bool:
    """Whether a name has the form `module:name`."""
    module, _, attribute = name.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


Count = Annotated[int, Between(1)]
Share = Annotated[float, Between(0, 1)]
Positive = Annotated[float, Between(0, low_open=True)]


def unmet_fields(config: Any) -> dict[str, str]:
    """What each wrong field of a dataclass should have been."""
    hints = get_type_hints(type(config), include_extras=True)
    expected = {name: _unmet(getattr(config, name), hint) for name, hint in hints.items()}
    return {name: text for name, text in expected.items() if text}


ALSO_CALLED = {
    **dict.fromkeys(("steps", "total_timesteps", "timesteps"), "total_env_steps"),
    **dict.fromkeys(("env_id", "gym_id"), "env"),
    **dict.fromkeys(("lr", "step_size"), "learning_rate"),
    **dict.fromkeys(("n_envs", "envs"), "num_envs"),
    **dict.fromkeys(("n_steps", "num_steps", "rollout_length"), "horizon"),
    **dict.fromkeys(("n_epochs", "update_epochs"), "epochs"),
    **dict.fromkeys(("gae_lambda", "lam"), "trace_decay"),
    **dict.fromkeys(("net_arch", "hidden_sizes"), "hidden"),
    **dict.fromkeys(("clip_coef", "cliprange"), "clip_range"),
    "gamma": "discount",
    "batch_size": "minibatch_size",
    "num_minibatches": "minibatches",
    "ent_coef": "entropy_coefficient",
    "vf_coef": "value_coefficient",
    "max_grad_norm": "max_gradient_norm",
    "algo": "algorithm",
    "make_env": "env",
}
"""What Stable-Baselines3, CleanRL and our own command line call an option."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean paper?`, or nothing where no known name is near."""
    known = list(known)
    near = [ALSO_CALLED[name]] if ALSO_CALLED.get(name) in known else []
    near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _unmet(value: object, hint: Any) -> str | None:
    """What `value` should have been by its annotation, or None if it is that."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, *notes = get_args(hint)
        choices = [note for note in notes if isinstance(note, ChoiceOrImport)]
        if choices:
            return None if choices[0].allows(value) else str(choices[0])
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
