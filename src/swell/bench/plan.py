"""The plan of a benchmark: its runs, where each lives, which wait for others, and whether a directory fits it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

from swell.bench.suites import resolve_envs
from swell.bench.variants import REPLAYS, Variant, parse_variants, resolve_control, variant_config
from swell.bench.workers.process import finished_summary
from swell.config.run_config import RunConfig, config_from_dict
from swell.errors import ConfigError, StorageError, SwellError
from swell.runs.run_directory import plain_name, read_json

RUNS, LOGS = "runs", "logs"
"""Folders of a benchmark's directory."""

MAY_DIFFER = ("ramp_from", "threads", "track")
"""Options that may differ from the plan: a path that changes when a benchmark is moved, and matters of the machine."""
SET_BY_SOURCE = ("scaler", "horizon", "ramp_order")
"""Options that the plan of a control leaves open until its source has finished."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a benchmark. `config` is what `resolved_config` completes where the variant follows another run."""

    name: str
    variant: Variant
    config: RunConfig
    source: str | None = None
    """Name of the run that must be finished first."""
    open_options: tuple[str, ...] = ()
    """Options that are drawn when the run begins, so that the plan does not know them."""

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

    def resolved_config(self, root: Path) -> RunConfig:
        """The whole config; a control's source has to be finished."""
        if self.source is None:
            return self.config
        return resolve_control(self.variant, self.config, root / RUNS / self.source)


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


def refuse_mismatched_runs(runs: Sequence[PlannedRun], root: Path) -> None:
    """ConfigError if a run in `root` was begun with other options than planned, a line for each that differs."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for difference in _differences(run, root):
            found.setdefault(difference, []).append(run.name)
    if found:
        lines: list[str] = []
        for difference, names in found.items():
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            lines.append(f"{difference} in {names[0]}{others}")
        way_out = "choose another --out, or ask for the same options again"
        raise ConfigError(*lines, f"{root} holds runs of another plan: {way_out}")


def _differences(run: PlannedRun, root: Path) -> list[str]:
    """One line for each option of the run on disk that is not as planned; none if it is not there or unreadable."""
    try:
        path = run.directory(root) / "config.json"
        described = read_json(path).get("config") if path.exists() else None
    except StorageError:
        return []  # the attempt to continue it will say so, and the other runs go on
    if not isinstance(described, dict):
        return []
    try:
        stored = config_from_dict(cast("dict[str, Any]", described)).to_dict()
    except SwellError as error:
        return str(error).splitlines()
    source_finished = _source_has_finished(run, root)
    planned = (run.resolved_config(root) if source_finished else run.config).to_dict()
    chosen_by_run = () if planned["checkpoint_every"] else ("checkpoint_every",)
    ignored = {*MAY_DIFFER, *chosen_by_run, *run.open_options, *(() if source_finished else SET_BY_SOURCE)}
    return [
        f"{name} is planned as {value!r}, but was {stored[name]!r}"
        for name, value in planned.items()
        if name not in ignored and stored[name] != value
    ]


def _source_has_finished(run: PlannedRun, root: Path) -> bool:
    try:
        return run.source is None or finished_summary(root / RUNS / run.source) is not None
    except StorageError:
        return False


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
