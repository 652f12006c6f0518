"""Options that are right each on its own and wrong together, in one line each."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swell.config.run_config import RunConfig

EVER_DECOUPLED = ("ppo-ewma", "ppg-ewma", "ess")
"""Learners that have their own idea of the proximal policy."""


def contradictions(config: RunConfig, unmet: Container[str]) -> list[str]:
    """One sentence for each; fields in `unmet` are wrong by themselves and are not looked at again."""
    checks = (_envs, _horizons, _thresholds, _evaluation, _signal, _pqn, _objective, _invariance)
    return [fault for check in checks for names, fault in check(config) if not any(name in unmet for name in names)]


Faults = Iterator[tuple[tuple[str, ...], str]]
"""The fields that a fault is about, and the fault."""


def _envs(config: RunConfig) -> Faults:
    if config.overlap and not _is_multiple(config.num_envs, 2):
        yield (
            ("num_envs", "overlap"),
            f"num_envs must be even with overlap, which steps them in two halves, got {config.num_envs}",
        )


def _horizons(config: RunConfig) -> Faults:
    # Wrong types reach this place: what cannot be compared is in `unmet` and must not raise here.
    names = ("min_horizon", "max_horizon")
    if _is_more(config.min_horizon, config.max_horizon):
        yield names, f"min_horizon must be at most max_horizon, got {config.min_horizon} and {config.max_horizon}"
    if config.ramp_horizons == ():
        yield ("ramp_horizons",), "ramp_horizons must hold at least one horizon, got ()"
    for name in _planned_horizons(config):
        value, multiple = getattr(config, name), config.horizon_multiple
        if not all(_is_multiple(horizon, multiple) for horizon in (value if isinstance(value, tuple) else (value,))):
            names = (name, "scaler", "horizon_multiple")
            yield names, f"{name} must be a multiple of horizon_multiple, got {value} and {multiple}"


def _planned_horizons(config: RunConfig) -> tuple[str, ...]:
    """The options that say which horizons the scaler may plan."""
    match config.scaler:
        case "fixed":
            return ("horizon",)
        case "ramp":
            return ("ramp_horizons",) if config.ramp_from is None else ()
        case _:
            return ("min_horizon", "max_horizon")


def _thresholds(config: RunConfig) -> Faults:
    calm, volatile = config.calm_reading, config.volatile_reading
    names = ("calm_reading", "volatile_reading", "signal", "scaler", "algorithm")
    if config.signal == "effective_sample_size":
        if not _is_more(calm, volatile):
            yield (
                names,
                f"calm_reading must be more than volatile_reading for {config.signal}, got {calm} and {volatile}",
            )
    elif not _is_more(volatile, calm):
        yield names, f"calm_reading must be less than volatile_reading, got {calm} and {volatile}"


def _evaluation(config: RunConfig) -> Faults:
    for needed in ("evaluation_episodes", "evaluate_every"):
        if config.target_return is not None and getattr(config, needed) == 0:
            names = ("target_return", needed)
            yield names, f"target_return needs {needed} of at least 1, got {config.target_return} and 0"


def _signal(config: RunConfig) -> Faults:
    names = ("signal", "scaler", "algorithm")
    if config.scaler == "noise-scale" and config.signal not in ("auto", "gradient_noise_scale"):
        yield names, f"signal must be gradient_noise_scale for the noise-scale scaler, got {config.signal}"
    if config.scaler == "adaptive" and config.signal == "gradient_noise_scale":
        yield names, "scaler must be noise-scale (or fixed) for the signal gradient_noise_scale, got adaptive"


def _pqn(config: RunConfig) -> Faults:
    if config.algorithm != "pqn":
        return
    way_out = "choose another algorithm, for example ppo"
    if config.signal in ("kl_divergence", "effective_sample_size"):
        yield ("algorithm", "signal"), f"signal {config.signal} needs a stochastic policy, got pqn; {way_out}"
    for name, off in (("normalize_rewards", False), ("normalize_observations", False), ("staleness", 0)):
        if getattr(config, name) != off:
            yield (
                ("algorithm", name),
                f"{name} must be {_said(off)} for pqn, got {_said(getattr(config, name))}; {way_out}",
            )


def _objective(config: RunConfig) -> Faults:
    algorithm = config.algorithm
    if algorithm != "pqn" and config.learning_rate_rule == "sqrt" and config.invariance == "off":
        names = ("algorithm", "learning_rate_rule")
        yield names, f"learning_rate_rule must be constant for {algorithm}, got sqrt; see --invariance on"
    if algorithm in EVER_DECOUPLED and config.staleness_mode != "decoupled":
        yield (
            ("algorithm", "staleness_mode"),
            f"staleness_mode must be decoupled for {algorithm}, got {config.staleness_mode}; ppo and ppg have more",
        )
    if algorithm in ("ppo", "ess") and config.kl_penalty != 0:
        yield (
            ("algorithm", "kl_penalty"),
            f"kl_penalty must be 0 for {algorithm}, got {config.kl_penalty}; see ppo-ewma",
        )
    if algorithm == "ppo" and config.clip_range == 0:
        yield ("algorithm", "clip_range"), "clip_range must be more than 0 for ppo, got 0; ppo-ewma can go without"
    if algorithm in ("ppo-ewma", "ppg", "ppg-ewma") and config.advantage_norm == "minibatch":
        yield (
            ("algorithm", "advantage_norm"),
            f"advantage_norm must be batch or none for {algorithm}, got minibatch",
        )
    if algorithm in ("ppo-ewma", "ppg", "ppg-ewma") and config.target_kl is not None:
        yield ("algorithm", "target_kl"), f"target_kl must be none for {algorithm}, got {config.target_kl}"


def _invariance(config: RunConfig) -> Faults:
    if config.invariance == "on" and config.learning_rate_rule == "sqrt":
        names = ("invariance", "learning_rate_rule")
        yield names, "learning_rate_rule must be constant with invariance on, which has that rule, got sqrt"
    if config.invariance == "on" and config.invariance_rules == ():
        yield (
            ("invariance", "invariance_rules"),
            "invariance_rules must name at least one rule with invariance on, got ()",
        )


def _is_multiple(number: object, of: object) -> bool:
    return isinstance(number, int) and isinstance(of, int) and of > 0 and number % of == 0


def _is_more(first: object, second: object) -> bool:
    return isinstance(first, int | float) and isinstance(second, int | float) and first > second


def _said(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
