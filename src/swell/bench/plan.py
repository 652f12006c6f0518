"""The plan of a benchmark: which runs it has, where each lives, which wait for others, and what they may cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from swell.bench.suites import resolve_envs
from swell.bench.variants import REPLAYS, Variant, follow, parse_variants, variant_config
from swell.config.run_config import RunConfig
from swell.envs.ids import EnvFamily, env_family
from swell.errors import ConfigError
from swell.runs.run_directory import plain_name

RUNS, LOGS = "runs", "logs"
"""Folders of a benchmark's directory."""

# Measured on one core of a busy two-core machine with the default networks; a first guess, no promise.
STEPS_PER_SECOND: dict[EnvFamily, float] = {
    "classic": 12_000,
    "minatar": 6_000,
    "mujoco": 2_500,
    "atari": 300,
    "procgen": 250,
    "other": 4_000,
}
MEGABYTES_PER_RUN: dict[EnvFamily, float] = {
    "classic": 2.5,
    "minatar": 8.0,
    "mujoco": 4.0,
    "atari": 90.0,
    "procgen": 60.0,
    "other": 5.0,
}
"""Three checkpoints and the logs."""
START_SECONDS = 5.0


@dataclass(frozen=True)
class PlannedRun:
    """One run of a benchmark. `config` is what `settled` completes where the variant follows another run."""

    name: str
    variant: Variant
    config: RunConfig
    source: str | None = None
    """Name of the run that must be finished first."""

    @property
    def env(self) -> str:
        return self.config.env

    @property
    def seed(self) -> int:
        return self.config.seed

    def directory(self, root: Path) -> Path:
        return root / RUNS / self.name

    def log(self, root: Path) -> Path:
        return root / LOGS / f"{self.name.replace('/', '_')}.log"

    def settled(self, root: Path) -> RunConfig:
        """The whole config; a control's source has to be finished."""
        return self.config if self.source is None else follow(self.variant, self.config, root / RUNS / self.source)


@dataclass(frozen=True)
class Cost:
    """What the runs of a plan may take together."""

    seconds: float
    gigabytes: float
    env_steps: int


def make_plan(
    envs: Sequence[str],
    variants: Sequence[str],
    seeds: int,
    first_seed: int = 1,
    preset: str = "auto",
    shared: dict[str, Any] | None = None,
) -> list[PlannedRun]:
    """Every env × seed × variant, sources before those that follow them, so that an early stop is a fair sample."""
    env_ids = resolve_envs(envs)
    parsed = parse_variants(variants, preset)
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, got {seeds}")
    replays = [variant.label for variant in parsed if variant.control in REPLAYS]
    if seeds < 2 and replays:
        raise ConfigError(
            f"variant {replays[0]!r} needs at least 2 seeds: it repeats a run of another seed, "
            "because with the same seed and the same horizons it would be that run"
        )
    configs = {(env, v.label): variant_config(v, env, shared or {}) for env, v in product(env_ids, parsed)}
    numbers = range(first_seed, first_seed + seeds)
    ordered = sorted(parsed, key=lambda variant: variant.control is not None)
    runs = [
        _planned(configs[env, variant.label], env, variant, seed, numbers)
        for seed, variant, env in product(numbers, ordered, env_ids)
    ]
    _require_distinct_names(runs)
    return runs


def run_name(env: str, label: str, seed: int) -> str:
    """`ALE/Pong-v5`, `fixed:16`, 1 -> `ALE-Pong-v5/fixed-16/seed-1`."""
    return f"{plain_name(env)}/{plain_name(label)}/seed-{seed}"


def cost_of(runs: Sequence[PlannedRun], jobs: int, speeds: dict[str, float] | None = None) -> Cost:
    """An estimate; `speeds` are steps per second that finished runs of an env have shown."""
    seconds = 0.0
    for run in runs:
        speed = (speeds or {}).get(run.env) or STEPS_PER_SECOND[env_family(run.env)]
        seconds += START_SECONDS + run.config.total_env_steps / speed
    megabytes = sum(MEGABYTES_PER_RUN[env_family(run.env)] for run in runs)
    return Cost(seconds / max(1, jobs), megabytes / 1024, sum(run.config.total_env_steps for run in runs))


def _planned(config: RunConfig, env: str, variant: Variant, seed: int, seeds: range) -> PlannedRun:
    source = None
    if variant.source is not None:
        other = seeds[(seed - seeds[0] + 1) % len(seeds)] if variant.control in REPLAYS else seed
        source = run_name(env, variant.source, other)
    return PlannedRun(run_name(env, variant.label, seed), variant, replace(config, seed=seed), source)


def _require_distinct_names(runs: Sequence[PlannedRun]) -> None:
    by_name: dict[str, PlannedRun] = {}
    for run in runs:
        other = by_name.setdefault(run.name, run)
        if other is not run:
            raise ConfigError(
                f"variants {other.variant.label!r} and {run.variant.label!r} would share the folder {run.name}; "
                "give one another label: LABEL=VARIANT"
            )
