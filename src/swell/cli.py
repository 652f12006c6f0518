"""The command line: train, resume, evaluate, bench, report, presets, scale. Heavy imports wait for a command."""

import os
import shutil
import sys
import traceback
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union, cast

import tyro

from swell.bench.command import Bench, bench
from swell.config.run_config import RunConfig
from swell.errors import ConfigError, SwellError
from swell.presets import describe_presets, preset_config
from swell.report.command import Report, report


@dataclass(frozen=True)
class Train:
    """Train an agent on ENV in a new run directory.

    The preset sets every default below; each option can be changed on its own.
    """

    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """Run directory; by default runs/<env>-<algorithm>-<scaler>-s<seed>. One that holds a run is never overwritten."""
    new: bool = False
    """Take the next free name (…-2, …-3) where the run directory is in use."""
    report: bool = False
    """Also write report.html into the run directory at the end."""
    quiet: bool = False
    """Print only the report at the end."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Resume:
    """Continue a run from its newest good checkpoint, after any kind of end."""

    directory: tyro.conf.Positional[Path]
    """Run directory."""
    steps: int | None = None
    """New total of env steps, to go on for longer than first asked."""
    quiet: bool = False
    """Print only the report at the end."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Evaluate:
    """Score the greedy policy of a run over whole episodes, unclipped."""

    directory: tyro.conf.Positional[Path]
    """Run directory."""
    episodes: int = 100
    """Episodes to play."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which weights to take."""
    seed: int | None = None
    """Seed of the envs; by default drawn from the run's."""
    video: Path | None = None
    """Also film one episode into this file (.mp4 or .gif)."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Presets:
    """List the presets, one line each."""


@dataclass(frozen=True)
class Scale:
    """Carry the hyper-parameters of a preset from one batch size to another, by the rules of arXiv 2110.00641."""

    from_batch: int
    """Transitions per rollout at which they were tuned."""
    to_batch: int
    """Transitions per rollout that you want."""
    preset: str = "ppg-ewma"
    """Recipe that they come from."""
    env: str = "procgen/coinrun"
    """Env whose kind the preset goes by."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class UncheckedConfig(RunConfig):
    """A config that may contradict itself: the preset that would settle it is not known yet."""

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class Draft(Train):
    """Train, as far as it can be read before the preset is known."""

    config: Annotated[UncheckedConfig, tyro.conf.arg(name="")]


Draft.__doc__ = Train.__doc__  # what `swell train --help` shows
Command = Train | Resume | Evaluate | Presets | Scale | Bench | Report

NO_ENV = "ENV"
"""Stands in for an env that the command line does not name."""


def main() -> None:
    """Runs one command; every failure ends in one line and its exit code."""
    arguments = sys.argv[1:]
    sys.path.append(os.getcwd())  # so that `module:Env-v0` finds the user's own module
    try:
        execute(parse(arguments))
    except SwellError as error:
        _fail(error, error.exit_code, arguments)
    except KeyboardInterrupt:
        _fail(SwellError("stopped at once; `swell resume` goes on from the newest checkpoint"), 130, arguments)
    except Exception as error:  # the last line of defence: no traceback unless asked for
        _fail(error, 1, arguments)


def parse(arguments: list[str]) -> Command:
    """Parses twice: once to learn the env and the preset, then with that preset's values as the defaults."""
    command = _parse_with(_without_help(arguments), Draft(UncheckedConfig(env=NO_ENV)))
    if not isinstance(command, Train):
        return command
    if command.config.env == NO_ENV and _without_help(arguments) != arguments:
        return _parse_with(arguments, Train(RunConfig(env=NO_ENV)))
    if command.config.env == NO_ENV:
        raise ConfigError("env is missing: name one, for example `swell train CartPole-v1`")
    defaults = preset_config(command.config.preset, command.config.env, command.config.algorithm)
    command = cast(Train, _parse_with(arguments, Train(defaults)))
    return replace(command, config=replace(command.config, preset=defaults.preset))


def _without_help(arguments: list[str]) -> list[str]:
    """What `train` is asked beside --help, so that the help can show the defaults of the preset that would be used."""
    if arguments[:1] != ["train"]:
        return arguments
    return [argument for argument in arguments if argument not in ("-h", "--help")]


def execute(command: Command) -> None:
    if isinstance(command, Presets):
        list_presets()
    elif isinstance(command, Scale):
        scale(command)
    elif isinstance(command, Evaluate):
        evaluate(command)
    elif isinstance(command, Bench):
        bench(command)
    elif isinstance(command, Report):
        report(command)
    else:
        train_or_resume(command)


def list_presets() -> None:
    presets = describe_presets()
    width = max(len(name) for name, _ in presets)
    for name, text in presets:
        print(f"{name:<{width}}  {text}")


def scale(command: Scale) -> None:
    from swell.batch.scale import scale_report

    for name in ("from_batch", "to_batch"):
        if getattr(command, name) < 1:
            raise ConfigError(f"{name} must be at least 1, got {getattr(command, name)}")
    print(scale_report(preset_config(command.preset, command.env), command.from_batch, command.to_batch))


def train_or_resume(command: Train | Resume) -> None:
    from swell.display.console import patient_console, say
    from swell.runs.start import resume, run  # imports torch

    if isinstance(command, Train):
        summary = run(command.config, command.out, new=command.new, quiet=command.quiet)
    else:
        summary = resume(command.directory, command.steps, quiet=command.quiet)
    say(_report(summary), patient_console())
    if isinstance(command, Train) and command.report:
        report(Report((Path(summary["directory"]),)))


def evaluate(command: Evaluate) -> None:
    from swell.runs import agent  # imports torch

    row = agent.evaluate(command.directory, command.episodes, command.checkpoint, command.seed, command.video)
    print(
        f"return {row['mean_return']:.2f} ± {row['std_return']:.2f} over {row['episodes']} greedy episodes "
        f"(min {min(row['returns']):g}, max {max(row['returns']):g}), weights of env step {row['env_steps']:,}"
    )
    if command.video is not None:
        print(f"video: {command.video}")


def _report(summary: dict[str, Any]) -> str:
    from swell.display.words import summary_report
    from swell.runs.run_directory import read_description, read_jsonl

    directory = summary["directory"]
    rows = read_jsonl(Path(directory) / "metrics.jsonl")
    # What was planned: the very last rollout is cut to the run's total.
    horizons = [row["horizon"] for row in rows[:1]] + [row["next_horizon"] for row in rows[:-1]]
    total = read_description(Path(directory))["config"]["total_env_steps"]
    longer = total if summary["env_steps"] < total else 2 * total
    return summary_report(summary, horizons, next_commands(directory, longer))


def next_commands(directory: str, longer: int) -> list[str]:
    """What one might try now: with what is installed, and by a path where `swell` itself is not found."""
    swell = "swell" if shutil.which("swell") else sys.argv[0]
    video = f" --video {Path(directory) / 'agent.mp4'}" if find_spec("imageio") else ""
    other = "MinAtar/Breakout-v1" if find_spec("minatar") else "Acrobot-v1"
    return [
        f"{swell} evaluate {directory}{video}",
        f"{swell} report {directory}",
        f"{swell} resume {directory} --steps {longer}",
        f"{swell} train {other}",
        f"{swell} presets",
    ]


def _parse_with(arguments: list[str], defaults: Train) -> Command:
    train = Annotated[type(defaults), tyro.conf.subcommand("train", default=defaults)]
    commands = Union[  # noqa: UP007  # the alternatives are values, not names
        train,
        Annotated[Resume, tyro.conf.subcommand("resume")],
        Annotated[Evaluate, tyro.conf.subcommand("evaluate")],
        Annotated[Bench, tyro.conf.subcommand("bench")],
        Annotated[Report, tyro.conf.subcommand("report")],
        Annotated[Presets, tyro.conf.subcommand("presets")],
        Annotated[Scale, tyro.conf.subcommand("scale")],
    ]
    return tyro.cli(  # pyright: ignore[reportCallIssue]  # a union of annotated types is no type to pyright
        commands,  # pyright: ignore[reportArgumentType]
        prog="swell",
        description="Reinforcement learning whose batch grows as the policy settles.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.ConsolidateSubcommandArgs),
    )


def _fail(error: BaseException, exit_code: int, arguments: list[str]) -> NoReturn:
    if "--debug" in arguments:
        traceback.print_exception(error)
    lines = str(error).splitlines() or [type(error).__name__]
    if exit_code == 1:
        lines = [f"unexpected {type(error).__name__}: {lines[0]}; --debug shows the traceback"]
    for line in lines:
        print(f"swell: {line}", file=sys.stderr)
    sys.exit(exit_code)
