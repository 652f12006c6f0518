"""Settings of the batch: what sets its size, how hard to train on it, and what is measured to decide."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from swell.config.validation import Between, ChoiceOrImport, Count, Fault, Positive, Settings, is_more

Interpolation = Literal["log", "linear"]
Rounding = Literal["nearest", "truncate"]
EpochRule = Literal["constant", "scale", "proportional"]
MinibatchRule = Literal["count", "size"]
Window = Literal["iteration", "interval"]
MeasureUnit = Literal["iterations", "env-steps"]
ScalerName = Annotated[str, ChoiceOrImport("adaptive", "fixed", "ramp", "noise-scale")]
SignalChoice = Annotated[
    str,
    ChoiceOrImport("auto", "behavioral_divergence", "kl_divergence", "effective_sample_size", "gradient_noise_scale"),
]


@dataclass(frozen=True, kw_only=True)
class BatchSettings(Settings):
    """How much is collected before an update, and how hard the update trains on it."""

    scaler: ScalerName = "adaptive"
    """What sets the rollout horizon: the policy's stability, nothing, a given ramp, the gradient noise scale, or a
    class of your own, `module:Class`."""
    horizon: Count = 32
    """Rollout length L of the fixed scaler; reference of the `scale` epoch rule and of `reference_batch`."""
    epochs: Count = 2
    """Passes over each rollout."""
    epoch_rule: EpochRule = "constant"
    """`scale` makes max(⌊epochs · L / horizon⌋, epochs) passes, as the public release of ABS does for PQN;
    `proportional` goes below `epochs` too, down to 1, as it does for PPO."""
    minibatch_rule: MinibatchRule = "size"
    """`count`: a fixed number of minibatches, so longer rollouts mean fewer gradient steps per sample.
    `size`: minibatches of a fixed size, so gradient steps per sample stay the same while the batch grows."""
    minibatches: Count = 4
    """Minibatches per epoch under the `count` rule. More means more, noisier gradient steps."""
    minibatch_size: Count = 128
    """Samples in a minibatch under the `size` rule."""


@dataclass(frozen=True, kw_only=True)
class MovingBatchSettings(BatchSettings):
    """The range of a horizon that readings move."""

    min_horizon: Count = 16
    """Shortest adaptive rollout. Lower learns faster while the policy moves, and costs more time per step."""
    max_horizon: Count = 64
    """Longest adaptive rollout. Memory is allocated for it at the start."""
    smoothing: Annotated[float, Between(0, 1, low_open=True)] = 0.1
    """How far each reading moves the horizon towards its target; 1 jumps."""

    def contradictions(self) -> Iterator[Fault]:
        if is_more(self.min_horizon, self.max_horizon):
            names = ("min_horizon", "max_horizon")
            yield names, f"min_horizon must be at most max_horizon, got {self.min_horizon} and {self.max_horizon}"


@dataclass(frozen=True, kw_only=True)
class AdaptiveSettings(MovingBatchSettings):
    """Adaptive batch scaling (arXiv 2605.21557)."""

    calm_reading: Positive = 0.05
    """δ_min: readings at or below it ask for the longest horizon. (At or above it for effective_sample_size.)"""
    volatile_reading: Positive = 0.95
    """δ_max: readings at or above it ask for the shortest horizon. (At or below it for effective_sample_size.)"""
    interpolation: Interpolation = "log"
    """How the horizon follows readings between the two."""
    history: Count = 1
    """Readings averaged before they count. More is steadier and slower."""
    warmup_readings: Annotated[int, Between(0)] = 0
    """The horizon stays at its minimum until so many readings were taken."""
    rounding: Rounding = "nearest"
    """`truncate` reproduces the public release of ABS, whose horizon stalls at 55 of 64 and 119 of 128."""

    def contradictions(self) -> Iterator[Fault]:
        if self.calm_reading == self.volatile_reading:
            names = ("calm_reading", "volatile_reading")
            yield names, f"calm_reading must differ from volatile_reading, got {self.calm_reading} for both"


@dataclass(frozen=True, kw_only=True)
class NoiseScaleSettings(MovingBatchSettings):
    """A batch that follows the gradient noise scale (arXiv 1812.06162)."""

    batch_per_noise_scale: Positive = 1.0
    """Noise-scale scaler: samples per gradient step for each unit of the noise scale. Lower is cheaper in data."""


@dataclass(frozen=True, kw_only=True)
class RampSettings(BatchSettings):
    """A horizon that is a given function of progress."""

    ramp_horizons: tuple[Count, ...] = (16, 64)
    """Ramp scaler: horizons at evenly spaced moments of the run, interpolated between."""
    ramp_from: str | None = None
    """Ramp scaler: a run directory whose horizons are repeated step by step, deaf to this run's readings."""
    ramp_order: Literal["recorded", "shuffled"] = "recorded"
    """Ramp scaler with ramp_from: the horizons as they came, or the same ones in random order."""

    def contradictions(self) -> Iterator[Fault]:
        if self.ramp_horizons == ():
            yield ("ramp_horizons",), "ramp_horizons must hold at least one horizon, got ()"


@dataclass(frozen=True, kw_only=True)
class SignalSettings(Settings):
    """What is measured, and how often."""

    signal: SignalChoice = "auto"
    """What is measured; `auto` is the KL divergence for policies, behavioral divergence for pqn, or what the scaler
    needs; or a class of your own, `module:Class`. The thresholds of the adaptive scaler belong to the signal."""
    measure_every: Count = 10
    """K: a reading of the signal every so many iterations (or env steps, see measure_unit)."""
    measure_unit: MeasureUnit = "iterations"
    """What measure_every counts."""


@dataclass(frozen=True, kw_only=True)
class PolicyChangeSettings(SignalSettings):
    """Signals that compare the policy before and after an update."""

    probe_states: Count = 2048
    """Most states that a reading looks at, drawn from the rollout just trained on."""
    window: Window = "iteration"
    """A reading compares the policy across one update, or since the reading before."""
    action_tolerance: Positive = 0.1
    """Behavioral divergence of continuous policies: moves of the mean by fewer standard deviations do not count."""


@dataclass(frozen=True, kw_only=True)
class NoiseSignalSettings(SignalSettings):
    """The gradient noise scale."""

    noise_microbatches: Annotated[int, Between(2)] = 16
    """Gradient noise scale: into how many shuffled parts a rollout is split. More is surer and takes longer."""
    noise_averaging: Annotated[float, Between(0, 0.9999)] = 0.9
    """Gradient noise scale: how slowly the averages of noise and signal follow new readings; 0 takes each as it is."""
