"""The options that Swell adds to TRL's GRPOConfig, with their checks."""

# ruff: noqa: RUF009  # _option is dataclasses.field under a shorter name

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from swell.errors import ConfigError

try:
    from trl.trainer.grpo_config import GRPOConfig as TRLConfig
except ImportError as error:
    raise ConfigError('swell.llm needs TRL: pip install "swell-rl[trl]"') from error

from swell.llm.moving_batch import BatchRule

ESSScope = Literal["step", "micro-batch"]
BatchScaler = Literal["none", "fixed", "ramp", "adaptive"]
SignalName = Literal["kl_divergence", "effective_sample_size", "behavioral_divergence"]
ReadingCorrection = Literal["learning-rate-and-batch", "learning-rate", "none"]
GROWTH = 8
"""How many times the smallest generation the largest is, unless told otherwise."""


def _option(default: Any, sentence: str) -> Any:
    return field(default=default, metadata={"help": sentence})


@dataclass
class GRPOConfig(TRLConfig):
    """TRL's GRPOConfig with `loss_type="ess"` and a batch that moves. Every option of TRL keeps its meaning.

    Without a `batch_scaler` the loop is TRL's own. With one, TRL's `gradient_accumulation_steps`,
    `steps_per_generation` and `generation_batch_size` say how the run begins.
    """

    loss_type: str = _option(
        "dapo", "The loss: one of TRL's, or `ess` (arXiv 2605.12380), which has no clip range to choose."
    )
    disable_dropout: bool | None = _option(
        None,
        "Train without dropout. By default on with loss_type ess, where dropout makes fresh data look stale; off "
        "otherwise, as in TRL.",
    )
    ess_scope: ESSScope = _option(
        "step",
        "Tokens that the effective sample size is taken over: those of the whole optimizer step on all processes, "
        "or of each micro-batch as its authors do.",
    )
    ess_cap: bool = _option(True, "Cap the ratios at the effective sample size; off is for ablations.")
    ess_pull: bool = _option(True, "Pull towards the policy that sampled, with weight 1 - e; off is for ablations.")
    batch_scaler: BatchScaler = _option(
        "none",
        "What sets the generation batch: TRL's own loop (none), nothing (fixed), a ramp over the run, or the "
        "policy's stability (adaptive).",
    )
    batch_rule: BatchRule = _option(
        "count",
        "What a larger generation becomes. count: as many updates as before, each of more completions. size: "
        "more updates of as many completions.",
    )
    min_generation_batch_size: int | None = _option(
        None, "Smallest generation, in completions over all processes; by default generation_batch_size."
    )
    max_generation_batch_size: int | None = _option(
        None, f"Largest generation; by default {GROWTH} times the smallest. Memory must do for it."
    )
    total_completions: int | None = _option(
        None,
        "Length of the run in completions, also for the learning-rate schedule; by default as many as TRL would "
        "sample with max_steps or num_train_epochs.",
    )
    signal: SignalName = _option("kl_divergence", "What is measured of an update to decide on the batch.")
    calm_reading: str | float = _option(
        "auto",
        "Readings at or below it (effective_sample_size: above) ask for the largest batch. auto: a tenth of "
        "volatile_reading, in KL divergence.",
    )
    volatile_reading: str | float = _option(
        "auto",
        "Readings at or above it (effective_sample_size: below) ask for the smallest batch. auto: the median of the "
        "first calibration_readings.",
    )
    calibration_readings: int = _option(
        10, "Readings that auto thresholds are taken from; the batch stays small until then."
    )
    settling_readings: int = _option(
        10, "Readings before those, which are ignored: a fresh Adam makes longer steps than it will later."
    )
    smoothing: float = _option(0.1, "How far each reading moves the batch towards its target; 1 jumps.")
    history: int = _option(1, "Readings averaged before they count. More is steadier and slower.")
    measure_every: int = _option(1, "A reading every so many generations; 0 takes none.")
    probe_completions: int = _option(32, "Most completions that a reading looks at, over all processes.")
    reading_correction: ReadingCorrection = _option(
        "learning-rate-and-batch",
        "What is taken out of a reading before the batch follows it: it goes with the square "
        "of the learning rate, and noise in it with 1 / batch.",
    )
    invariance: Literal["off", "on"] = _option(
        "off",
        "Scale the learning rate with the root of the completions per update (Adam's rule, arXiv 2110.00641); the "
        "rate given belongs to the first update.",
    )
    regenerate_below_ess: float | None = _option(
        None,
        "End a generation as soon as an update saw an effective sample size below this; the number of updates that the "
        "other options make of it is then the most that there are.",
    )

    def __post_init__(self) -> None:
        if self.disable_dropout is None:
            self.disable_dropout = self.loss_type == "ess"  # pyright: ignore[reportIncompatibleVariableOverride]
        self.calm_reading = _threshold(self.calm_reading)
        self.volatile_reading = _threshold(self.volatile_reading)
        super().__post_init__()
        faults = [*self._wrong_values(), *self._contradictions()]
        if faults:
            raise ConfigError(*faults)

    def _wrong_values(self) -> list[str]:
        choices = {"ess_scope": ESSScope, "batch_scaler": BatchScaler, "batch_rule": BatchRule, "signal": SignalName}
        choices |= {"reading_correction": ReadingCorrection, "invariance": Literal["off", "on"]}
        faults = [
            f"{name} must be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}"
            for name, kind in choices.items()
            if getattr(self, name) not in get_args(kind)
        ]
        least = {
            "calibration_readings": 1,
            "history": 1,
            "probe_completions": 1,
            "measure_every": 0,
            "settling_readings": 0,
        }
        for name, bound in least.items():
            if getattr(self, name) < bound:
                faults.append(f"{name} must be a whole number of at least {bound}, got {getattr(self, name)!r}")
        for name in ("calm_reading", "volatile_reading"):
            value = getattr(self, name)
            if value != "auto" and not (isinstance(value, float) and 0.0 < value < math.inf):
                faults.append(f"{name} must be auto or a finite number of more than 0, got {value!r}")
        if not 0.0 < self.smoothing <= 1.0:
            faults.append(f"smoothing must be more than 0 and at most 1, got {self.smoothing!r}")
        if self.regenerate_below_ess is not None and not 0.0 < self.regenerate_below_ess <= 1.0:
            faults.append(f"regenerate_below_ess must be more than 0 and at most 1, got {self.regenerate_below_ess!r}")
        return faults

    def _contradictions(self) -> list[str]:
        return [*self._faults_of_the_objective(), *self._faults_of_readings(), *self._faults_of_the_batch()]

    def _faults_of_the_objective(self) -> Iterator[str]:
        if self.loss_type != "ess":
            if self.regenerate_below_ess is not None:
                yield "regenerate_below_ess goes by the e of loss_type ess, and this run has none"
            return
        if self.importance_sampling_level != "token":
            yield (
                "loss_type ess weighs every token by its own ratio: importance_sampling_level must be token, got "
                f"{self.importance_sampling_level!r}"
            )
        if self.use_vllm and self.vllm_importance_sampling_correction:
            yield (
                "loss_type ess corrects for the sampler itself, and with vllm_importance_sampling_correction every "
                "token would be weighted twice: set it to False"
            )
        if getattr(self, "use_liger_kernel", False):  # older versions of TRL have it
            yield "loss_type ess cannot go through Liger's fused loss: set use_liger_kernel to False"

    def _faults_of_readings(self) -> Iterator[str]:
        if self.batch_scaler == "adaptive" and self.measure_every == 0:
            yield "batch_scaler adaptive follows readings: measure_every must be at least 1"
        if (self.calm_reading == "auto") != (self.volatile_reading == "auto"):
            yield "calm_reading and volatile_reading must both be auto or both be given"
        elif self.calm_reading == self.volatile_reading != "auto":
            yield f"calm_reading must differ from volatile_reading, got {self.calm_reading} for both"

    def _faults_of_the_batch(self) -> Iterator[str]:
        given = [name for name in ("min_generation_batch_size", "max_generation_batch_size") if getattr(self, name)]
        if self.batch_scaler == "none":
            given += [name for name in ("total_completions", "regenerate_below_ess") if getattr(self, name) is not None]
            given += ["invariance"] if self.invariance == "on" else []
            yield from (f"{name} needs a batch_scaler; fixed keeps the batch as it is" for name in given)
            return
        if self.batch_scaler == "fixed":
            yield from (
                f"{name} is not read by batch_scaler fixed; its batch is generation_batch_size" for name in given
            )
        if cast(int, self.steps_per_generation) % self.gradient_accumulation_steps:
            yield (
                "a moving batch makes whole updates of a generation: steps_per_generation must be a multiple of "
                f"gradient_accumulation_steps, got {self.steps_per_generation} and {self.gradient_accumulation_steps}"
            )


def _threshold(value: Any) -> Any:
    """The command line hands numbers over as text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
