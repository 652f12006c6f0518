"""`swell sweep`: its options, the plan in words, and the end. Heavy imports wait until they are needed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from swell.bench.command import UnfinishedError
from swell.errors import ConfigError

if TYPE_CHECKING:
    from swell.bench.plan import PlannedRun
    from swell.config.run_config import RunConfig
    from swell.sweep.trials import Trials

BEST = "best.toml"


@dataclass(frozen=True)
class Sweep:
    """Search for good options on ENV: Optuna draws them, runs that fall behind are stopped, the best becomes a preset.

    The space has a part for each option: OPTION=LOW..HIGH, OPTION=log:LOW..HIGH or OPTION=A,B,… such as
    `learning_rate=log:1e-5..1e-2 epochs=1,2,4 hidden=64x64,256x256`. Run the same command again to go on where it
    stopped, with more --trials for longer; several may share a directory. The best of many is partly luck: the end
    prints the command that scores it with fresh seeds.
    """

    env: tyro.conf.Positional[str] = ""
    """Environment, as for `swell train`."""
    space: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OPTION=RANGE …")] = ()
    """What is drawn."""
    trials: int = 40
    """Runs in all, each with a seed of its own."""
    steps: int | None = None
    """Env steps of a whole run; by default what the preset says."""
    preset: str = "auto"
    """Recipe, or preset file, that gives all other options; `auto` goes by the env."""
    options: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="OPTION=VALUE …")] = ()
    """Options of `swell train` for all trials."""
    halving: int = 3
    """Of the runs that reach a rung, one in so many goes on; 1 stops none."""
    first_rung: int | None = None
    """Env steps of the first rung; each further one is `halving` times as far. By default steps / halving²."""
    first_seed: int = 1
    """Seed of the first trial; the others have those after it."""
    out: Path = Path("sweep")
    """Directory of the sweep: runs, logs, Optuna's journal and best.toml."""
    jobs: int = 0
    """Runs at a time on this machine; 0 takes one for each core."""
    retries: int = 3
    """How often a run whose process died is resumed."""
    dry_run: bool = False
    """Print the plan and what it may cost at most, refuse what could not be run, and stop."""
    quiet: bool = False
    """Print only the plan and the end."""
    debug: bool = False
    """Show the traceback of an error."""


def sweep(command: Sweep) -> None:
    from swell.bench.board import make_board
    from swell.bench.queue import refuse, run_benchmark
    from swell.bench.workers.local import LocalExecutor, default_jobs
    from swell.sweep.space import parse_space
    from swell.sweep.trials import Trials, import_optuna

    import_optuna()
    base = base_config(command)
    space = parse_space(command.space, base)
    rungs = rungs_of(command, base.total_env_steps)
    runs = planned_trials(command, base, tuple(part.name for part in space))
    executor = LocalExecutor(command.out, command.jobs or default_jobs())
    print(describe(command, runs, rungs, command.jobs or default_jobs()), flush=True)
    if command.dry_run:
        refuse(runs, command.out, executor)
        return
    trials = Trials(command.out, space, rungs, command.halving, command.first_seed)
    board = make_board(command.quiet)
    result = run_benchmark(runs, command.out, executor, board, command.retries, overseer=trials)
    print(result.report())
    print(conclude(command, base, trials))
    if result.failed:
        raise UnfinishedError(f"{len(result.failed)} of {len(runs)} runs failed; the same command tries them again")


def base_config(command: Sweep) -> RunConfig:
    """What all trials share."""
    from swell.bench.variants import parse_options
    from swell.envs.ids import resolve_env_id
    from swell.presets import make_config

    if not command.env:
        raise ConfigError("env is missing: name one, for example `swell sweep CartPole-v1 --space epochs=1,2,4`")
    for name, least in (("trials", 1), ("halving", 1), ("first_seed", 0), ("jobs", 0), ("retries", 0)):
        if getattr(command, name) < least:
            raise ConfigError(f"{name} must be at least {least}, got {getattr(command, name)}")
    shared: dict[str, Any] = {"threads": 1, **dict(parse_options(command.options))}
    if command.steps is not None:
        shared["total_env_steps"] = command.steps
    return make_config(resolve_env_id(command.env), preset=command.preset, **shared)


def rungs_of(command: Sweep, total: int) -> list[int]:
    """Env steps at which runs are judged, all before the end."""
    if command.halving == 1:
        return []
    first = command.first_rung if command.first_rung is not None else max(1, total // command.halving**2)
    if not 1 <= first < total:
        raise ConfigError(f"first_rung must be at least 1 and less than the {total} steps of a run, got {first}")
    rungs = [first]
    while rungs[-1] * command.halving < total:
        rungs.append(rungs[-1] * command.halving)
    return rungs


def planned_trials(command: Sweep, base: RunConfig, drawn: tuple[str, ...]) -> list[PlannedRun]:
    """A place for each trial; what is drawn is decided when it begins."""
    from swell.bench.plan import PlannedRun, run_name
    from swell.bench.variants import Variant

    runs: list[PlannedRun] = []
    for number in range(command.trials):
        label, seed = f"trial-{number + 1}", command.first_seed + number
        variant = Variant(label, command.preset, "preset", "", ())
        config = replace(base, seed=seed, label=label)
        runs.append(PlannedRun(run_name(base.env, label, seed), variant, config, open_options=drawn))
    return runs


def describe(command: Sweep, runs: Sequence[PlannedRun], rungs: Sequence[int], jobs: int) -> str:
    from swell.bench.forecast import cost_of, rough_duration

    base, cost = runs[0].config, cost_of(runs, jobs)
    length = f"{base.total_env_steps:,} env steps each"
    judged = ", ".join(f"{rung:,}" for rung in rungs)
    return "\n".join(
        [
            f"{len(runs)} trials on {base.env}, {base.preset}, {length}, in {command.out}",
            f"  space     {' '.join(command.space)}",
            f"  rungs     at {judged} env steps, one in {command.halving} goes on" if rungs else "  rungs     none",
            f"  at most   {cost.env_steps:,} env steps, {rough_duration(cost.seconds)} with {jobs} at a time",
        ]
    )


def conclude(command: Sweep, base: RunConfig, trials: Trials) -> str:
    """Writes the best trial as a preset, and says how to use it and how to find out what it is worth."""
    from swell.presets import write_preset
    from swell.sweep.trials import RUN

    best = trials.best()
    if best is None:
        return "no trial has finished with a score, so there is no preset"
    config = replace(base, threads=type(base).threads, **trials.options_of(best))
    path, counts = command.out / BEST, trials.counts()
    drawn = " ".join(
        f"{name}={f'{value:.4g}' if isinstance(value, float) else value}" for name, value in best.params.items()
    )
    score = f"score {best.value:g} of one run, the best of {counts['drawn']}"
    write_preset(path, config, [f"swell sweep on {base.env}: {score}, which is partly luck.", drawn])
    refused = f"; {counts['refused']} draws contradicted themselves" if counts["refused"] else ""
    return "\n".join(
        [
            f"best: {best.user_attrs[RUN].split('/')[-2]}, {score}{refused}: {drawn}",
            f"  use it:   {shlex.join(['swell', 'train', base.env, '--preset', str(path)])}",
            "  it was picked for its luck too; fresh seeds say what it is worth:",
            f"            {shlex.join(fresh_command(command, base, path))}",
        ]
    )


def fresh_command(command: Sweep, base: RunConfig, path: Path) -> list[str]:
    """The best beside what the sweep began with, on seeds that no trial had."""
    seeds = ["--seeds", "5", "--first-seed", str(command.first_seed + command.trials)]
    options = ["--set", *command.options] if command.options else []
    sides = [f"tuned={path}", f"before={base.preset}"]
    length = ["--steps", str(base.total_env_steps)]
    return [
        "swell",
        "bench",
        base.env,
        "--variants",
        *sides,
        *seeds,
        *length,
        *options,
        "--out",
        str(command.out / "fresh"),
    ]
