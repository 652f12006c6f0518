"""RunConfig: every choice of a run, one default each, checked once and completely. Imports nothing heavy."""

import dataclasses
import difflib
import math
import types
from collections.abc import Container
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import tyro

from swell.errors import ConfigError


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


Count = Annotated[int, Between(1)]
Share = Annotated[float, Between(0, 1)]
Positive = Annotated[float, Between(0, low_open=True)]


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run does. The defaults are the recipe for classic control; presets change them."""

    env: tyro.conf.Positional[str]
    """Environment: any Gymnasium id, `ALE/Pong-v5` or short `pong`, `MinAtar/Breakout-v1`."""

    # The run.
    preset: str = "auto"
    """Recipe that sets the defaults of all other options; `auto` goes by the kind of env. See `swell presets`."""
    algorithm: Literal["pqn"] = "pqn"
    """Learning algorithm."""
    total_env_steps: Annotated[Count, tyro.conf.arg(name="steps")] = 200_000
    """Env steps to train for (agent steps; an Atari step is 4 frames). Schedules stretch with it."""
    seed: Annotated[int, Between(0, 2**31)] = 1
    """Seed of the weights, the envs, exploration, minibatch order and probes; each draws from its own generator."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where the network lives; `auto` takes a GPU if there is one."""
    threads: Annotated[int, Between(0, 4096)] = 0
    """CPU threads for the network and for Atari; 0 chooses: 1 for small networks, all cores for images."""

    # Environments.
    num_envs: Count = 32
    """Envs stepped together, E. More envs make each step cheaper and the batch E × horizon larger."""
    async_envs: bool = False
    """One process per env; pays off only for envs slower than about a millisecond a step."""
    max_episode_steps: Count | None = None
    """Time limit in agent steps; None keeps the env's own (MinAtar: 5000). It truncates, it does not terminate."""
    episodic_life: bool = False
    """Atari: a lost life ends the episode for the learner (not for statistics). The PQN protocol sets it."""
    clip_rewards: bool = False
    """The learner sees only the sign of each reward; statistics keep the true score."""
    sticky_actions: Share = 0.0
    """Atari: chance that an env repeats the last action; Machado et al. use 0.25. MinAtar always has 0.1 or more."""
    noop_max: Annotated[int, Between(0, 1000)] = 30
    """Atari: up to this many random no-ops start each game."""
    reward_scale: Positive = 0.1
    """Factor on rewards before learning; smaller values keep targets near 1 where returns are large."""

    # The batch.
    scaler: Literal["adaptive", "fixed", "ramp"] = "adaptive"
    """What sets the rollout horizon: the policy's stability, nothing, or a given ramp."""
    horizon: Count = 32
    """Rollout length L of the fixed scaler; reference of the `scale` epoch rule and the `sqrt` learning-rate rule."""
    min_horizon: Count = 16
    """Shortest adaptive rollout. Lower learns faster while the policy moves, and costs more time per step."""
    max_horizon: Count = 64
    """Longest adaptive rollout. Memory is allocated for it at the start."""
    ramp_horizons: tuple[Annotated[int, Between(1)], ...] = (16, 64)
    """Ramp scaler: horizons at evenly spaced moments of the run, interpolated between."""
    ramp_from: str | None = None
    """Ramp scaler: a run directory whose horizons are repeated step by step, deaf to this run's readings."""
    epochs: Count = 2
    """Passes over each rollout."""
    epoch_rule: Literal["constant", "scale"] = "constant"
    """`scale` makes max(⌊epochs · L / horizon⌋, epochs) passes, as the public release of ABS does."""
    minibatch_rule: Literal["count", "size"] = "size"
    """`count`: a fixed number of minibatches, so longer rollouts mean fewer gradient steps per sample.
    `size`: minibatches of a fixed size, so gradient steps per sample stay the same while the batch grows."""
    minibatches: Count = 4
    """Minibatches per epoch under the `count` rule. More means more, noisier gradient steps."""
    minibatch_size: Count = 128
    """Samples in a minibatch under the `size` rule."""
    micro_batch_size: Count = 1024
    """Most samples in one forward pass; larger minibatches accumulate gradients, to the same sum but for rounding."""

    # Adaptive batch scaling.
    measure_every: Count = 10
    """K: a reading of behavioral divergence every so many iterations (or env steps, see measure_unit)."""
    measure_unit: Literal["iterations", "env-steps"] = "iterations"
    """What measure_every counts."""
    probe_states: Count = 2048
    """Most states that a reading looks at, drawn from the rollout just trained on."""
    window: Literal["iteration", "interval"] = "iteration"
    """A reading compares the policy across one update, or since the reading before."""
    calm_reading: Annotated[float, Between(0, 1, low_open=True)] = 0.05
    """δ_min: readings at or below it ask for the longest horizon."""
    volatile_reading: Annotated[float, Between(0, 1, low_open=True)] = 0.95
    """δ_max: readings at or above it ask for the shortest horizon."""
    interpolation: Literal["log", "linear"] = "log"
    """How the horizon follows readings between the two."""
    smoothing: Annotated[float, Between(0, 1, low_open=True)] = 0.1
    """How far each reading moves the horizon towards its target; 1 jumps."""
    history: Count = 1
    """Readings averaged before they count. More is steadier and slower."""
    warmup_readings: Annotated[int, Between(0)] = 0
    """The horizon stays at its minimum until so many readings were taken."""
    rounding: Literal["nearest", "truncate"] = "nearest"
    """`truncate` reproduces the public release of ABS, whose horizon stalls at 55 of 64 and 119 of 128."""

    # Learning.
    learning_rate: Positive = 5e-4
    """Step size of RAdam."""
    anneal_learning_rate: bool = True
    """Lets the learning rate fall linearly to 0 over the run."""
    learning_rate_rule: Literal["constant", "sqrt"] = "constant"
    """`sqrt` multiplies it by √(batch / (num_envs · horizon)) while the batch moves."""
    epsilon_start: Share = 1.0
    """Share of random actions at the start."""
    epsilon_end: Share = 0.05
    """Share of random actions after the decay."""
    epsilon_fraction: Share = 0.3
    """Part of the run over which exploration decays."""
    discount: Share = 0.99
    """γ: how much a reward one step later is worth."""
    trace_decay: Share = 0.95
    """λ: 0 trusts the next value alone, 1 the observed rewards alone."""
    max_gradient_norm: Positive = 10.0
    """Longer gradients are scaled down to this norm."""
    loss_coefficient: Positive = 1.0
    """Factor on the squared error: 1 as CleanRL and ABS, 0.5 as the PQN authors. It matters for the clipping."""
    truncation_is_termination: bool = False
    """Treats time limits as terminal states, as the reference implementations do; wrong, but comparable."""

    # The network.
    network: Literal["auto", "mlp", "minatar-cnn", "nature-cnn", "pqn-l", "pqn-xl"] = "auto"
    """`auto` goes by the shape of an observation."""
    hidden: tuple[Annotated[int, Between(1)], ...] = (128, 128)
    """Widths of the MLP's layers."""
    norm_over: Literal["channels", "map"] = "channels"
    """What LayerNorm averages in an image: the channels of each pixel (PQN authors) or the whole map (CleanRL)."""
    multi_skip_head: Literal["original", "release"] = "original"
    """PQN-L and PQN-XL: the head of the original paper, or the LayerNorm over Q-values of the public release of ABS."""

    # Evaluation and saving.
    evaluate_every: Annotated[int, Between(0)] = 0
    """Env steps between greedy evaluations; 0 evaluates only at the end."""
    evaluation_episodes: Annotated[int, Between(0)] = 100
    """Whole greedy episodes per evaluation; 0 never evaluates."""
    target_return: float | None = None
    """Stops the run when an evaluation reaches this mean return."""
    checkpoint_every: Annotated[int, Between(0)] = 0
    """Env steps between checkpoints; 0 saves 20 times a run."""
    checkpoint_minutes: Positive = 10.0
    """A checkpoint is also written when so many minutes have passed since the last."""

    def __post_init__(self) -> None:
        unmet = _unmet_fields(self)
        faults = [f"{name} must be {expected}, got {getattr(self, name)!r}" for name, expected in unmet.items()]
        faults += _contradictions(self, unmet)
        if faults:
            raise ConfigError(*faults)

    @property
    def longest_horizon(self) -> int:
        """The horizon that buffers must hold, where the config alone decides it."""
        return {"adaptive": self.max_horizon, "fixed": self.horizon, "ramp": max(self.ramp_horizons)}[self.scaler]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def config_from_dict(values: dict[str, Any]) -> RunConfig:
    """The inverse of `to_dict`, through JSON too; unknown names are faults."""
    names = [field.name for field in dataclasses.fields(RunConfig)]
    unknown = [name for name in values if name not in names]
    if unknown:
        raise ConfigError(*(f"unknown option {name}{did_you_mean(name, names)}" for name in unknown))
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return RunConfig(**fields)


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint such as `; did you mean paper?`, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _unmet_fields(config: RunConfig) -> dict[str, str]:
    """What each wrong field should have been."""
    hints = get_type_hints(RunConfig, include_extras=True)
    expected = {name: _unmet(getattr(config, name), hint) for name, hint in hints.items()}
    return {name: text for name, text in expected.items() if text}


def _contradictions(config: RunConfig, unmet: Container[str]) -> list[str]:
    """Fields that are right each on its own and wrong together."""

    def sound(*names: str) -> bool:
        return all(name not in unmet for name in names)

    faults: list[str] = []
    if sound("min_horizon", "max_horizon") and config.min_horizon > config.max_horizon:
        got = f"{config.min_horizon} and {config.max_horizon}"
        faults.append(f"min_horizon must be at most max_horizon, got {got}")
    if sound("calm_reading", "volatile_reading") and config.calm_reading >= config.volatile_reading:
        got = f"{config.calm_reading} and {config.volatile_reading}"
        faults.append(f"calm_reading must be less than volatile_reading, got {got}")
    if sound("ramp_horizons") and not config.ramp_horizons:
        faults.append("ramp_horizons must hold at least one horizon, got ()")
    for needed in ("evaluation_episodes", "evaluate_every"):
        if sound("target_return", needed) and config.target_return is not None and getattr(config, needed) == 0:
            faults.append(f"target_return needs {needed} of at least 1, got {config.target_return} and 0")
    return faults


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
