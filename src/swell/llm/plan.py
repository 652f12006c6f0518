"""From options to the plan of a run: how generations are cut, what sets their size, and how many completions in all."""

import math
from typing import Any, cast

from swell.batch.calibration import CalibratedScaler
from swell.batch.controller import BatchController
from swell.batch.scalers import AdaptiveScaler, FixedScaler, HorizonScaler, RampScaler
from swell.errors import ConfigError
from swell.llm.config import GROWTH, GRPOConfig
from swell.llm.moving_batch import MovingBatch, PromptStream, Shape


def moving_batch(config: GRPOConfig, num_prompts: int) -> MovingBatch:
    """The plan of a run over a dataset of so many prompts."""
    shape = shape_of(config)
    controller = BatchController(scaler=_scaler(config, *slice_range(config, shape)))
    prompts = PromptStream(num_prompts, config.seed, config.shuffle_dataset is not False)
    return MovingBatch(shape, controller, prompts, config.total_completions or _completions_of_trl(config, num_prompts))


def shape_of(config: GRPOConfig) -> Shape:
    """How generations are cut, in the words of TRL's own options."""
    return Shape(
        slice_size=config.per_device_train_batch_size * config.world_size,
        num_generations=cast(int, config.num_generations),
        rule=config.batch_rule,
        updates_per_pass=_updates_per_pass(config),
        slices_per_update=config.gradient_accumulation_steps,
        passes=config.num_iterations,
    )


def slice_range(config: GRPOConfig, shape: Shape) -> tuple[int, int]:
    """The smallest and the largest generation, in slices."""
    first = cast(int, config.generation_batch_size)
    if config.batch_scaler == "fixed":
        size = shape.slices("generation_batch_size", first)
        return size, size
    least = shape.slices("min_generation_batch_size", config.min_generation_batch_size or first)
    largest = config.max_generation_batch_size or GROWTH * least * shape.slice_size
    most = shape.slices("max_generation_batch_size", largest)
    if least > most:
        raise ConfigError(
            "min_generation_batch_size must be at most max_generation_batch_size, got "
            f"{least * shape.slice_size} and {most * shape.slice_size}"
        )
    return least, most


def _scaler(config: GRPOConfig, least: int, most: int) -> HorizonScaler:
    """With the horizon in slices."""
    if config.batch_scaler == "fixed":
        return FixedScaler(horizon=least)
    if config.batch_scaler == "ramp":
        return RampScaler(ramp_horizons=(least, most))
    shared: dict[str, Any] = {"min_horizon": least, "max_horizon": most}
    shared |= {"smoothing": config.smoothing, "history": config.history}
    if config.calm_reading == "auto":
        shared |= {"calibration_readings": config.calibration_readings, "settling_readings": config.settling_readings}
        return CalibratedScaler(config.signal, **shared)
    return AdaptiveScaler(calm_reading=config.calm_reading, volatile_reading=config.volatile_reading, **shared)


def _completions_of_trl(config: GRPOConfig, num_prompts: int) -> int:
    """As many as TRL itself would sample."""
    if config.max_steps > 0:
        updates = _updates_per_pass(config) * config.num_iterations
        return math.ceil(config.max_steps / updates) * cast(int, config.generation_batch_size)
    return math.ceil(config.num_train_epochs * num_prompts) * cast(int, config.num_generations)


def _updates_per_pass(config: GRPOConfig) -> int:
    return cast(int, config.steps_per_generation) // config.gradient_accumulation_steps
