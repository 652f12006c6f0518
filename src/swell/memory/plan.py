"""The memory plan: what a run will hold at its longest rollout, and what gives way where that is too much."""

import math
from dataclasses import dataclass, fields, replace

from swell.batch.scalers import batch_plan
from swell.config.run_config import RunConfig
from swell.errors import OutOfMemoryError
from swell.memory.dry_run import Held

MB = 2**20
SHARE_OF_FREE = 0.9
"""Of what is free at the start, how much a run may come to unless memory_limit says otherwise."""
SMALLEST_MICRO_BATCH = 32
"""Fewer samples at a time save little more, and layers spend their time on reading their own weights."""
FRAGMENTATION = 1.4
"""What the C library's heap grows by for each byte that passes through it; measured, see docs/memory.md."""
FIRST_USE = 8 * MB
"""Code and pools of threads that are loaded when they are first used; measured likewise."""
VIEWS_OF_A_STEP = 2048
"""Views of one step of a rollout, which are made beforehand."""
SAVED_COPIES = 3
"""Copies of a state that exist while a checkpoint of it is written."""


@dataclass(frozen=True)
class MemoryPlan:
    """What was predicted and decided before a run began. It is stored, so that a resumed run does not decide anew."""

    micro_batch_size: int
    longest_horizon: int
    predicted_mb: float | None = None
    """The most that the process will hold; None where nothing can be said."""
    limit_mb: float | None = None
    """None where the system does not say what is free."""
    asked_mb: float | None = None
    """What it would have come to as it was asked for; None if nothing was changed."""

    def applied_to(self, config: RunConfig) -> RunConfig:
        """The config as if all this had been asked for."""
        config = replace(config, micro_batch_size=self.micro_batch_size)
        return replace(config, max_horizon=self.longest_horizon) if config.adapts_horizon else config


def describe(plan: MemoryPlan, asked: RunConfig) -> str | None:
    """The plan in one line; None if there is nothing to say."""
    steps = math.ceil(asked.total_env_steps / asked.num_envs)
    if plan.predicted_mb is None:
        return None if asked.memory_limit is None else "memory: cannot be predicted here, so memory_limit is not kept"
    limit = "" if plan.limit_mb is None else f", limit {plan.limit_mb:,.0f} MB"
    line = f"memory: about {plan.predicted_mb:,.0f} MB at horizon {min(plan.longest_horizon, steps):,}{limit}"
    if plan.longest_horizon > steps:
        line += f"; no rollout gets to {plan.longest_horizon:,}, as each env makes {steps:,} steps in all"
    if plan.asked_mb is None:
        return line
    used = plan.applied_to(asked)
    changes = [
        f"{name} is {getattr(used, name):,} instead of {getattr(asked, name):,}"
        for name in ("micro_batch_size", "max_horizon")
        if getattr(used, name) != getattr(asked, name)
    ]
    return f"{line}; it would take {plan.asked_mb:,.0f} MB, so {' and '.join(changes)}"


def memory_limit(config: RunConfig, resident: float, free: float | None) -> float | None:
    """Bytes that the process may come to; None if nobody says."""
    if config.memory_limit is not None:
        return config.memory_limit * MB
    return None if free is None else SHARE_OF_FREE * (free + resident)


@dataclass(frozen=True)
class DryRun:
    """One dry run: its size and what it held."""

    samples: int
    """In a gradient step and in a measurement; as many envs acted."""
    rows: int
    held: Held


@dataclass(frozen=True)
class Growth:
    """Bytes as a function of the samples that go through the network at once, and of the rows of a rollout."""

    moments: list[tuple[float, float]]
    """What is held at each moment that may be the peak: a constant, and what is added per sample."""
    per_row: float

    def at(self, samples: float, rows: float) -> float:
        return max(constant + per_sample * samples for constant, per_sample in self.moments) + self.per_row * rows


def growth_of(name: str, first: DryRun, wider: DryRun, longer: DryRun) -> Growth:
    """How a part of `Held` grows. `wider` has more samples than `first` and more rows, `longer` more rows alone.

    A large batch may have its peak at another moment than a small one, so every moment is continued by itself.
    """
    levels, wider_levels, longer_levels = (getattr(each.held, name) for each in (first, wider, longer))
    if len(levels) != len(wider_levels):  # no two moments to compare but the peaks
        levels, wider_levels = [max(levels)], [max(wider_levels)]
    per_row = (max(longer_levels) - max(levels)) / (longer.rows - first.rows)
    moments: list[tuple[float, float]] = []
    for level, wider_level in zip(levels, wider_levels, strict=True):
        per_sample = (wider_level - level - per_row * (wider.rows - first.rows)) / (wider.samples - first.samples)
        moments.append((level - per_sample * first.samples - per_row * first.rows, per_sample))
    return Growth(_possible_peaks(moments), per_row)


def _possible_peaks(moments: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without those that never exceed another one."""
    peaks: list[tuple[float, float]] = []
    for constant, per_sample in sorted(moments, key=lambda moment: moment[::-1], reverse=True):
        if not peaks or constant > peaks[-1][0]:
            peaks.append((constant, per_sample))
    return peaks


@dataclass(frozen=True)
class Needs:
    """What the parts of an iteration hold, each as explained in `Held`."""

    learner: Growth
    rollout: Growth
    acting: Growth
    measuring: Growth
    kept: Growth
    updating: Growth
    lasting: Growth
    saved: Growth


def needs_of(first: DryRun, wider: DryRun, longer: DryRun) -> Needs:
    """What three dry runs say of all others; see `growth_of`."""
    return Needs(**{field.name: growth_of(field.name, first, wider, longer) for field in fields(Held)})


@dataclass(frozen=True)
class Footprint:
    """What a process holds at its peak, as a function of the longest rollout and of the micro-batch."""

    config: RunConfig
    needs: Needs
    resident: float
    """What the process holds already: the interpreter, its libraries and the envs."""
    each_env: float
    """What one env takes."""
    evaluation_envs: int
    longest_rollout: float = math.inf
    """Steps after which the whole run is over."""

    def peak(self, horizon: int, micro_batch_size: int) -> float:
        config, needs = self.config, self.needs
        horizon = int(min(horizon, self.longest_rollout))
        rows = horizon * config.num_envs
        trained_rows = max(rows, config.phase_env_steps) if self.has_phases else rows
        samples = min(micro_batch_size, self.largest_minibatch(horizon))
        rollout = needs.rollout.at(config.num_envs, rows)
        waiting = (config.staleness + 1) * rollout if config.staleness else 0.0  # the queue, and the one trained on
        measured_samples = self._measured_samples(rows, micro_batch_size)
        kept = needs.kept.at(min(config.probe_states, rows), rows)
        # Stale rollouts and whole phases go through the network once before they are trained on.
        revisited = min(micro_batch_size, trained_rows) if config.staleness or self.has_phases else 0
        computing = max(
            needs.updating.at(samples, trained_rows),
            needs.measuring.at(measured_samples, rows) - needs.kept.at(measured_samples, rows),
            needs.acting.at(revisited, 0),
        )
        # What acting has left in the heap is in pieces that are too small for the rest.
        computing += needs.acting.at(config.num_envs, 0) + kept
        if config.window == "interval":
            computing += kept  # of the reading before
        evaluating = self.evaluation_envs * self.each_env + FRAGMENTATION * needs.acting.at(self.evaluation_envs, 0)
        saved = needs.saved.at(samples, trained_rows) + waiting
        saving = SAVED_COPIES * saved
        spare = saved if config.async_envs else 0.0
        lasting = self.resident + FIRST_USE + needs.learner.at(0, 0) + needs.lasting.at(samples, trained_rows)
        views = horizon * VIEWS_OF_A_STEP
        return lasting + rollout + views + waiting + spare + max(FRAGMENTATION * computing, evaluating, saving)

    def largest_minibatch(self, horizon: int) -> int:
        rows = horizon * self.config.num_envs
        minibatch = math.ceil(rows / min(batch_plan(self.config, self.config.num_envs, horizon).minibatches, rows))
        return max(minibatch, self.config.auxiliary_minibatch_size) if self.has_phases else minibatch

    @property
    def has_phases(self) -> bool:
        return self.config.algorithm in ("ppg", "ppg-ewma") and self.config.auxiliary_epochs > 0

    def _measured_samples(self, rows: int, micro_batch_size: int) -> int:
        """How many samples of a measurement go through the network at once."""
        states = self.config.probe_states
        if self.config.signal_name == "gradient_noise_scale":
            states = max(1, rows // self.config.noise_microbatches)
        return min(micro_batch_size, states, rows)


def plan_memory(footprint: Footprint, longest_horizon: int, limit: float | None) -> MemoryPlan:
    """The plan that keeps most of what was asked for.

    Micro-batches give way first, since gradients stay the same but for rounding. Then the longest horizon does, if
    readings move the horizon; one that was asked for as such is kept or refused.
    """
    config = footprint.config
    asked = footprint.peak(longest_horizon, config.micro_batch_size)
    limit_mb = None if limit is None else limit / MB
    if limit is None or asked <= limit:
        return MemoryPlan(config.micro_batch_size, longest_horizon, asked / MB, limit_mb)
    *_, smallest = sizes = _smaller_micro_batches(footprint, longest_horizon)
    for size in sizes:
        if (peak := footprint.peak(longest_horizon, size)) <= limit:
            return MemoryPlan(size, longest_horizon, peak / MB, limit_mb, asked / MB)
    fits = _longest_that_fits(footprint, longest_horizon, smallest, limit)
    if not config.adapts_horizon or fits < config.min_horizon:
        raise OutOfMemoryError(_refusal(footprint, longest_horizon, smallest, limit, fits))
    return MemoryPlan(smallest, fits, footprint.peak(fits, smallest) / MB, limit_mb, asked / MB)


def _smaller_micro_batches(footprint: Footprint, horizon: int) -> list[int]:
    """From what is used at once as it was asked for, by halves."""
    sizes = [min(footprint.config.micro_batch_size, footprint.largest_minibatch(horizon))]
    while sizes[-1] // 2 >= SMALLEST_MICRO_BATCH:
        sizes.append(sizes[-1] // 2)
    return sizes


def _longest_that_fits(footprint: Footprint, longest_horizon: int, micro_batch_size: int, limit: float) -> int:
    """By bisection; 0 if none fits."""
    low, high = 0, longest_horizon
    while low < high:
        middle = (low + high + 1) // 2
        fits = footprint.peak(middle, micro_batch_size) <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _refusal(footprint: Footprint, longest_horizon: int, micro_batch_size: int, limit: float, fits: int) -> str:
    config = footprint.config
    name, horizon = ("min_horizon", config.min_horizon) if config.adapts_horizon else ("horizon", longest_horizon)
    needed = footprint.peak(horizon, micro_batch_size) / MB
    options = ["ramp_horizons" if config.scaler == "ramp" else name, "num_envs"]
    options += ["staleness"] if config.staleness else []
    options += ["phase_env_steps"] if footprint.has_phases else []
    hint = f" (a horizon of {fits} fits)" if fits else ""
    return (
        f"{name} {horizon} with {config.num_envs} envs takes about {needed:,.0f} MB even in micro-batches of "
        f"{micro_batch_size}, and the limit is {limit / MB:,.0f} MB; lower {' or '.join(options)}{hint} "
        "or raise memory_limit"
    )
