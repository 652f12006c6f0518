"""`swell bench`: its options, the plan in words, and how it runs. Heavy imports wait until they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from swell.errors import ConfigError, SwellError
from swell.report.command import Report, report

if TYPE_CHECKING:
    from swell.bench.plan import PlannedRun
    from swell.bench.queue import Executor

DEFAULT_VARIANTS = ("fixed:16", "fixed:32", "fixed:64", "adaptive", "ramp-replay", "matched-updates")


@dataclass(frozen=True)
class Bench:
    """Compare variants on a suite of envs with several seeds; run it again to go on where it stopped.

    Suites: atari57, atari10, atari5, minatar, classic, mujoco, procgen; env ids may stand beside them or instead.

    A variant is [LABEL=][PRESET/]RULE[+OPTION=VALUE…], where OPTION is any of `swell train`. Rules: fixed:H,
    adaptive[:MIN-MAX], noise-scale[:MIN-MAX], ramp[:A-B-…], any preset by its name or FILE.toml, and the controls:
    ramp-replay (the horizons of an adaptive run of another seed, blindly repeated), shuffled (the same horizons in
    random order), matched-updates (the fixed horizon with as many gradient steps as the adaptive run), epochs-scaled,
    minibatch-size.
    """

    envs: tyro.conf.Positional[tuple[str, ...]]
    """Suites and env ids."""
    variants: tuple[str, ...] = DEFAULT_VARIANTS
    """What to compare."""
    seeds: int = 5
    """Runs of each variant on each env. With fewer than 5 the intervals mean little."""
    first_seed: int = 1
    """The seeds are this one and those after it."""
    steps: int | None = None
    """Env steps of each run; by default what the preset says."""
    preset: str = "auto"
    """Recipe of the variants that name none, or a preset file; `auto` goes by the env."""
    options: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="OPTION=VALUE …")] = ()
    """Options of `swell train` for all variants, for example `--set measure_every=10 minibatches=8`."""
    out: Path = Path("bench")
    """Directory of the benchmark: runs, logs, index and report."""
    jobs: int = 0
    """Runs at a time on this machine; 0 takes one for each core, divided by cpus_per_run."""
    cpus_per_run: int = 1
    """CPU threads of each run, which Ray reserves for it. Another number changes results in their last digits."""
    gpus_per_run: float = 0.0
    """GPUs that Ray reserves for each run; a fraction lets runs share one."""
    on: Literal["local", "ray"] = "local"
    """Where: processes of this machine, or a Ray cluster that shares the directory `out`."""
    address: str | None = None
    """Ray: address of the cluster, such as `auto` or `ray://head:10001`; by default a Ray of this machine alone."""
    retries: int = 3
    """How often a run whose process died is resumed. A run that failed by itself is not tried again until next time."""
    dry_run: bool = False
    """Print the plan and what it may cost, refuse what could not be run, and stop."""
    quiet: bool = False
    """Print only the plan and the end."""
    debug: bool = False
    """Show the traceback of an error."""


class UnfinishedError(SwellError):
    """Some runs of a benchmark failed; the rest is there."""


def bench(command: Bench) -> None:
    from swell.bench.board import make_board
    from swell.bench.queue import refuse, run_benchmark

    runs = planned_runs(command)
    print(describe(command, runs), flush=True)
    executor = make_executor(command)
    if command.dry_run:
        refuse(runs, command.out, executor)
        executor.close()
        return
    result = run_benchmark(runs, command.out, executor, make_board(command.quiet), command.retries)
    print(result.report())
    if result.finished:
        report(Report((command.out,)))
    if result.failed:
        raise UnfinishedError(f"{len(result.failed)} of {len(runs)} runs failed; the same command tries them again")


def planned_runs(command: Bench) -> list[PlannedRun]:
    from swell.bench.plan import make_plan
    from swell.bench.variants import parse_options

    for name, least in (("first_seed", 0), ("jobs", 0), ("cpus_per_run", 1), ("gpus_per_run", 0), ("retries", 0)):
        if getattr(command, name) < least:
            raise ConfigError(f"{name} must be at least {least}, got {getattr(command, name)}")
    shared: dict[str, Any] = {"threads": command.cpus_per_run, **dict(parse_options(command.options))}
    if command.steps is not None:
        shared["total_env_steps"] = command.steps
    return make_plan(command.envs, command.variants, command.seeds, command.first_seed, command.preset, shared)


def local_jobs(command: Bench) -> int:
    from swell.bench.workers.local import default_jobs

    return command.jobs or max(1, default_jobs() // command.cpus_per_run)


def make_executor(command: Bench) -> Executor:
    if command.on == "ray":
        from swell.bench.workers.ray import RayExecutor

        return RayExecutor(command.out, command.address, command.cpus_per_run, command.gpus_per_run)
    from swell.bench.workers.local import LocalExecutor

    return LocalExecutor(command.out, local_jobs(command))


def describe(command: Bench, runs: Sequence[PlannedRun]) -> str:
    """The plan in words, with what is left to do and what it may cost."""
    from swell.bench.forecast import cost_of, rough_duration
    from swell.bench.status import read_states

    states = read_states(runs, command.out)
    left = [state.run for state in states if not state.is_finished]
    speeds = {state.run.env: state.steps_per_second for state in states if state.is_finished and state.steps_per_second}
    envs = list(dict.fromkeys(run.env for run in runs))
    labels = list(dict.fromkeys(run.variant.label for run in runs))
    lines = [
        f"{len(envs)} envs × {len(labels)} variants × {command.seeds} seeds = {len(runs)} runs in {command.out}",
        f"  envs      {', '.join(envs)}",
        f"  variants  {', '.join(labels)}",
    ]
    if len(left) < len(runs):
        lines.append(f"  finished  {len(runs) - len(left)} runs; {len(left)} left")
    if left:
        jobs = local_jobs(command) if command.on == "local" else 1
        cost = cost_of(left, jobs, speeds)
        at_once = f"with {jobs} at a time" if command.on == "local" else "one after another"
        time, disk = rough_duration(cost.seconds), f"{max(cost.gigabytes, 0.1):.1f} GB of disk"
        lines.append(f"  estimate  {cost.env_steps:,} env steps, {time} {at_once}, {disk}")
    return "\n".join(lines)
