"""RunConfig: the settings of every component, and which of them a run reads."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeVar

from swell.config import batch, learners, runs
from swell.config.validation import Fault, Settings, did_you_mean, is_more, with_fields
from swell.errors import ConfigError

SignalName = Literal["behavioral_divergence", "kl_divergence", "effective_sample_size", "gradient_noise_scale"]
ALGORITHMS: dict[str, type[learners.LearnerSettings]] = {
    "pqn": learners.PQNSettings,
    "ppo": learners.PPOSettings,
    "ppo-ewma": learners.PPOEWMASettings,
    "ppg": learners.PPGSettings,
    "ppg-ewma": learners.PPGEWMASettings,
    "ess": learners.ESSSettings,
}
SCALERS: dict[str, type[batch.BatchSettings]] = {
    "adaptive": batch.AdaptiveSettings,
    "fixed": batch.BatchSettings,
    "ramp": batch.RampSettings,
    "noise-scale": batch.NoiseScaleSettings,
}
SIGNALS: dict[str, type[batch.SignalSettings]] = {
    "behavioral_divergence": batch.PolicyChangeSettings,
    "kl_divergence": batch.PolicyChangeSettings,
    "effective_sample_size": batch.PolicyChangeSettings,
    "gradient_noise_scale": batch.NoiseSignalSettings,
}
Config = TypeVar("Config", bound=Settings)
Reader = tuple[str, str, Mapping[str, type[Settings]]]
READERS: tuple[Reader, ...] = (
    ("{}", "algorithm", ALGORITHMS),
    ("the {} scaler", "scaler", SCALERS),
    ("the signal {}", "signal_name", SIGNALS),
)
"""Who may read an option: in words, the attribute that names the one in use, and what each of its kind reads."""
REMOVED = {"overlap": False, "horizon_multiple": 1}
"""Options of earlier versions, and the value at which a run did not use them."""


def _with_hints(kind: type[Config]) -> type[Config]:
    """Makes an unknown name a ConfigError with a hint, where Python has a TypeError."""
    init: Any = kind.__init__

    @wraps(init)
    def hinting(self: Config, *arguments: Any, **fields: Any) -> None:
        known = [field.name for field in dataclasses.fields(kind)]
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise ConfigError(*(f"unknown option {name}{did_you_mean(name, known)}" for name in unknown))
        init(self, *arguments, **fields)

    kind.__init__ = hinting
    return kind


@_with_hints
@dataclass(frozen=True, kw_only=True)
class RunConfig(
    runs.RunSettings,
    runs.EvaluationSettings,
    learners.PQNSettings,
    learners.PPOSettings,
    learners.ESSSettings,
    learners.PPGSettings,
    learners.PPGEWMASettings,
    batch.AdaptiveSettings,
    batch.NoiseScaleSettings,
    batch.RampSettings,
    batch.PolicyChangeSettings,
    batch.NoiseSignalSettings,
    runs.EnvSettings,
):
    """Everything that decides what a run does. The defaults suit PQN on classic control; presets change them.

    It is the settings of each of its components, so a component takes it as it is.
    """

    def __post_init__(self) -> None:
        self.name_own_parts()
        self.check(*self.read_settings, also=self._contradictions_between_components())

    @property
    def read_settings(self) -> tuple[type[Settings], ...]:
        """The kinds of settings that this run reads; a part of the user's own may read all of its kind."""
        algorithm = ALGORITHMS.get(self.algorithm, learners.LearnerSettings)
        scalers = [SCALERS[self.scaler]] if self.scaler in SCALERS else list(SCALERS.values())
        signals = [SIGNALS[self.signal_name]] if self.signal_name in SIGNALS else list(SIGNALS.values())
        return (runs.RunSettings, runs.EvaluationSettings, runs.EnvSettings, algorithm, *scalers, *signals)

    @property
    def read_options(self) -> set[str]:
        return {name for kind in self.read_settings for name in _names(kind)}

    def _contradictions_between_components(self) -> Iterator[Fault]:
        yield from self._unread_by_the_algorithm()
        yield from self._signal_against_scaler()
        if self.algorithm == "pqn" and self.signal in ("kl_divergence", "effective_sample_size"):
            names = ("algorithm", "signal")
            yield names, f"signal {self.signal} needs a stochastic policy, got pqn; try --algorithm ppo"

    def _unread_by_the_algorithm(self) -> Iterator[Fault]:
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if value != option.default and (fault := _unread(self, option.name, READERS[:1], f", got {value}")):
                yield ("algorithm", option.name), fault

    def _signal_against_scaler(self) -> Iterator[Fault]:
        names = ("signal", "scaler", "algorithm")
        if self.scaler == "noise-scale" and self.signal not in ("auto", "gradient_noise_scale"):
            yield names, f"signal must be gradient_noise_scale for the noise-scale scaler, got {self.signal}"
        if self.scaler != "adaptive":
            return
        if self.signal == "gradient_noise_scale":
            yield names, "scaler must be noise-scale (or fixed) for the signal gradient_noise_scale, got adaptive"
        calm, volatile = self.calm_reading, self.volatile_reading
        names = ("calm_reading", "volatile_reading", *names)
        if self.signal == "effective_sample_size" and is_more(volatile, calm):
            fault = f"calm_reading must be more than volatile_reading for {self.signal}, got {calm} and {volatile}"
            yield names, fault
        if self.signal in SIGNALS.keys() - {"effective_sample_size"} | {"auto"} and is_more(calm, volatile):
            yield names, f"calm_reading must be less than volatile_reading, got {calm} and {volatile}"

    @property
    def longest_horizon(self) -> int:
        """The horizon that buffers must hold, where the config alone decides it."""
        if self.scaler == "ramp":
            return max(self.ramp_horizons)
        return self.horizon if self.scaler == "fixed" else self.max_horizon

    @property
    def adapts_horizon(self) -> bool:
        """Whether readings move the horizon, between `min_horizon` and `max_horizon`."""
        return self.scaler not in ("fixed", "ramp")

    @property
    def signal_name(self) -> str:
        """The signal that `auto` stands for."""
        if self.signal != "auto":
            return self.signal
        if self.scaler == "noise-scale":
            return "gradient_noise_scale"
        return "behavioral_divergence" if self.algorithm == "pqn" else "kl_divergence"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def changed(config: RunConfig, **changes: Any) -> RunConfig:
    """The config with some options changed; a name that is unknown, or that the result would not read, is a fault."""
    result = with_fields(RunConfig, config, changes)
    require_read(result, changes)
    return result


def require_read(config: RunConfig, names: Iterable[str]) -> None:
    """Raises a ConfigError with a line for each of these options that the run would not read."""
    faults = [fault for name in names if (fault := _unread(config, name, READERS))]
    if faults:
        raise ConfigError(*faults)


def _unread(config: RunConfig, name: str, readers: Sequence[Reader], got: str = "") -> str | None:
    """Which part of the run has no use for an option that others of its kind read; None if nothing is wrong."""
    for said, attribute, table in readers:
        chosen, others = getattr(config, attribute), [key for key, kind in table.items() if name in _names(kind)]
        if others and chosen in table and chosen not in others:
            return f"{name} is not read by {said.format(chosen)}{got}; it belongs to {_listed(others)}"
    return None


def config_from_dict(values: dict[str, Any]) -> RunConfig:
    """The inverse of `to_dict`, through JSON too; unknown names are faults.

    Runs of earlier versions may hold values of options that they never read: those are as good as not given.
    """
    options = {field.name: field for field in dataclasses.fields(RunConfig)}
    values = {name: value for name, value in values.items() if name not in REMOVED or value != REMOVED[name]}
    unknown = [name for name in values if name not in options]
    if unknown:
        raise ConfigError(*(f"unknown option {name}{did_you_mean(name, options)}" for name in unknown))
    read = _names(ALGORITHMS.get(values.get("algorithm", "pqn"), learners.LearnerSettings))
    of_learners = {name for kind in ALGORITHMS.values() for name in _names(kind)}
    kept = {name: value for name, value in values.items() if name in read or name not in of_learners}
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()}
    return RunConfig(**fields)


def _names(kind: type[Settings]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
