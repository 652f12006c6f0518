"""What a sweep may draw: a range or a choice for each option.

learning_rate=log:1e-5..1e-2      epochs=1,2,4      discount=0.9..0.999      hidden=64x64,256x256
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swell.bench.variants import parse_options
from swell.config.options import options
from swell.config.run_config import RunConfig, changed
from swell.errors import ConfigError

NOT_DRAWN = {
    "env": "name it first",
    "seed": "each trial has its own",
    "label": "trials are named by their number",
    "preset": "a sweep has one",
    "total_env_steps": "trials of different length cannot be compared",
    "target_return": "a trial that ends early cannot be compared",
}


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, whole ones where the option has whole ones; evenly over their logarithm or not."""

    name: str
    low: float
    high: float
    log: bool
    whole: bool

    @property
    def extremes(self) -> list[Any]:
        return [int(self.low), int(self.high)] if self.whole else [self.low, self.high]

    def drawn(self, trial: Any) -> Any:
        draw = trial.suggest_int if self.whole else trial.suggest_float
        return draw(self.name, *self.extremes, log=self.log)


@dataclass(frozen=True)
class Choice:
    """Some values, as they were written."""

    name: str
    texts: tuple[str, ...]

    @property
    def extremes(self) -> list[Any]:
        return [_value(self.name, text) for text in self.texts]

    def drawn(self, trial: Any) -> Any:
        return _value(self.name, trial.suggest_categorical(self.name, list(self.texts)))


Dimension = Range | Choice


def parse_space(texts: Sequence[str], base: RunConfig) -> list[Dimension]:
    """The dimensions, each tried at its ends on `base`; ConfigError has a line for each that is wrong."""
    if not texts:
        raise ConfigError("space is empty: name options to draw, for example --space learning_rate=log:1e-5..1e-2")
    found: dict[str, Dimension] = {}
    faults: list[str] = []
    for text in texts:
        try:
            dimension = _dimension(text)
            for value in dimension.extremes:
                changed(base, **{dimension.name: value})
            if dimension.name in found:
                raise ConfigError(f"{dimension.name} is named twice")
            found[dimension.name] = dimension
        except ConfigError as error:
            faults += [f"space {text}: {fault}" for fault in error.faults]
    if faults:
        raise ConfigError(*faults)
    return list(found.values())


def _dimension(text: str) -> Dimension:
    written, equals, values = text.partition("=")
    if not equals or not values:
        raise ConfigError("it must look like OPTION=LOW..HIGH, OPTION=log:LOW..HIGH or OPTION=A,B,…")
    ((name, _),) = parse_options([f"{written}=0"])
    if name in NOT_DRAWN:
        raise ConfigError(f"{name} is not for a sweep: {NOT_DRAWN[name]}")
    if ".." not in values:
        texts = tuple(dict.fromkeys(values.split(",")))
        if len(texts) < 2 or not all(texts):
            raise ConfigError(f"{name} needs two values or more, got {values}; a single one goes to --set")
        return Choice(name, texts)
    return _range(name, values)


def _range(name: str, values: str) -> Range:
    log, ends = values.startswith("log:"), values.removeprefix("log:")
    try:
        low, high = map(float, ends.split(".."))
    except ValueError:
        raise ConfigError(f"{name} must have two numbers, LOW..HIGH, got {ends}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"{name} must go from a number to a larger one, got {ends}")
    if log and low <= 0:
        raise ConfigError(f"{name} must begin above 0 on a logarithmic scale, got {low:g}")
    whole = isinstance(options()[name].default, int) and low.is_integer() and high.is_integer()
    return Range(name, low, high, log, whole)


def _value(name: str, text: str) -> Any:
    """A choice as the option has it; lists are written 64x64, because commas part the choices."""
    is_list = isinstance(options()[name].default, tuple)
    ((_, value),) = parse_options([f"{name}={text.replace('x', ',') if is_list else text}"])
    return value
