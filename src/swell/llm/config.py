"""The options that Swell adds to TRL's GRPOConfig, with their checks."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from swell.errors import ConfigError

try:
    import trl
except ImportError as error:
    raise ConfigError('swell.llm needs TRL: pip install "swell-rl[trl]"') from error

from swell.batch.calibration import CalibratedScaler
from swell.batch.controller import BatchController
from swell.batch.scalers import AdaptiveScaler, FixedScaler, HorizonScaler, RampScaler
from swell.llm.moving_batch import BatchRule, MovingBatch, PromptStream, Shape

ESSScope = Literal["step", "micro-batch"]
BatchScaler = Literal["none", "fixed", "ramp", "adaptive"]
SignalName = Literal["kl_divergence", "effective_sample_size", "behavioral_divergence"]
ReadingCorrection = Literal["learning-rate-and-batch", "learning-rate", "none"]
GROWTH = 8
"""How many times the smallest generation the largest is, unless told otherwise."""


def _option(default: Any, sentence: str) -> Any:
    return field(default=default, metadata={"help": sentence})


@dataclass
class GRPOConfig(trl.GRPOConfig):
    """TRL's GRPOConfig with `loss_type="ess"` and a batch that moves. Every option of TRL keeps its meaning.

    Without a `batch_scaler` the loop is TRL's own. With one, TRL's `gradient_accumulation_steps`, `steps_per_generation`
    and `generation_batch_size` say how the run begins.
    """

    loss_type: str = _option(
        "dapo", "The loss: one of TRL's, or `ess` (arXiv 2605.12380), which has no clip range to choose."
    )
    disable_dropout: bool | None = _option(
        None,
        "Train without dropout. By default on with loss_type ess and with a measured batch, where dropout would make "
        "fresh data look stale; off otherwise, as in TRL.",
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
        "Readings at or below it (effective_sample_size: above) ask for the largest batch. auto: a tenth of volatile_reading.",
    )
    volatile_reading: str | float = _option(
        "auto",
        "Readings at or above it (effective_sample_size: below) ask for the smallest batch. auto: the median of the "
        "first calibration_readings.",
    )
    calibration_readings: int = _option(
        10, "Readings that auto thresholds are taken from; the batch stays small until then."
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
        "End a generation as soon as an update saw an effective sample size below this; its updates are then an upper bound.",
    )

    def __post_init__(self) -> None:
        if self.disable_dropout is None:
            self.disable_dropout = self.loss_type == "ess" or self.batch_scaler == "adaptive"
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
        least = {"calibration_readings": 1, "history": 1, "probe_completions": 1, "measure_every": 0}
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
        faults: list[str] = []
        if self.loss_type == "ess":
            if self.importance_sampling_level != "token":
                faults.append(
                    "loss_type ess weighs every token by its own ratio: importance_sampling_level must be token, got "
                    f"{self.importance_sampling_level!r}"
                )
            if self.use_vllm and self.vllm_importance_sampling_correction:
                faults.append(
                    "loss_type ess corrects for the sampler itself, and with vllm_importance_sampling_correction every "
                    "token would be weighted twice: set it to False"
                )
            if getattr(self, "use_liger_kernel", False):
                faults.append("loss_type ess cannot go through Liger's fused loss: set use_liger_kernel to False")
        elif self.regenerate_below_ess is not None:
            faults.append("regenerate_below_ess goes by the e of loss_type ess, and this run has none")
        if self.batch_scaler == "adaptive" and self.measure_every == 0:
            faults.append("batch_scaler adaptive follows readings: measure_every must be at least 1")
        if (self.calm_reading == "auto") != (self.volatile_reading == "auto"):
            faults.append("calm_reading and volatile_reading must both be auto or both be given")
        elif self.calm_reading == self.volatile_reading != "auto":
            faults.append(f"calm_reading must differ from volatile_reading, got {self.calm_reading} for both")
        if self.batch_scaler == "none":
            needing = (
                "min_generation_batch_size",
                "max_generation_batch_size",
                "total_completions",
                "regenerate_below_ess",
            )
            faults += [
                f"{name} needs a batch_scaler; fixed keeps the batch as it is"
                for name in needing
                if getattr(self, name) is not None
            ]
            if self.invariance == "on":
                faults.append("invariance needs a batch_scaler; fixed keeps the batch as it is")
        elif self.steps_per_generation % self.gradient_accumulation_steps:
            faults.append(
                "a moving batch makes whole updates of a generation: steps_per_generation must be a multiple of "
                f"gradient_accumulation_steps, got {self.steps_per_generation} and {self.gradient_accumulation_steps}"
            )
        return faults

    def shape(self) -> Shape:
        """How generations are cut, in the words of TRL's own options."""
        return Shape(
            slice_size=self.per_device_train_batch_size * self.world_size,
            num_generations=self.num_generations,
            rule=self.batch_rule,
            updates_per_pass=self.steps_per_generation // self.gradient_accumulation_steps,
            slices_per_update=self.gradient_accumulation_steps,
            passes=self.num_iterations,
        )

    def moving_batch(self, num_prompts: int) -> MovingBatch:
        """The plan of a run over a dataset of so many prompts."""
        shape = self.shape()
        controller = BatchController(scaler=self._scaler(shape))
        prompts = PromptStream(num_prompts, self.seed, self.shuffle_dataset is not False)
        return MovingBatch(shape, controller, prompts, self.total_completions or self._completions_of_trl(num_prompts))

    def slice_range(self, shape: Shape) -> tuple[int, int]:
        """The smallest and the largest generation, in slices."""
        if self.batch_scaler == "fixed":
            size = shape.slices("generation_batch_size", self.generation_batch_size)
            return size, size
        least = shape.slices("min_generation_batch_size", self.min_generation_batch_size or self.generation_batch_size)
        most = shape.slices(
            "max_generation_batch_size", self.max_generation_batch_size or GROWTH * least * shape.slice_size
        )
        if least > most:
            raise ConfigError(
                "min_generation_batch_size must be at most max_generation_batch_size, got "
                f"{least * shape.slice_size} and {most * shape.slice_size}"
            )
        return least, most

    def _scaler(self, shape: Shape) -> HorizonScaler:
        least, most = self.slice_range(shape)
        if self.batch_scaler == "fixed":
            return FixedScaler(horizon=least)
        if self.batch_scaler == "ramp":
            return RampScaler(ramp_horizons=(least, most))
        fields: dict[str, Any] = {"min_horizon": least, "max_horizon": most, "smoothing": self.smoothing}
        fields["history"] = self.history
        if self.calm_reading == "auto":
            return CalibratedScaler(self.signal, calibration_readings=self.calibration_readings, **fields)
        return AdaptiveScaler(calm_reading=self.calm_reading, volatile_reading=self.volatile_reading, **fields)

    def _completions_of_trl(self, num_prompts: int) -> int:
        if self.max_steps > 0:
            updates = self.steps_per_generation // self.gradient_accumulation_steps * self.num_iterations
            return math.ceil(self.max_steps / updates) * self.generation_batch_size
        return math.ceil(self.num_train_epochs * num_prompts) * self.num_generations


def _threshold(value: Any) -> Any:
    """The command line hands numbers over as text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
