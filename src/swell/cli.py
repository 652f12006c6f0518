"""The command line: train, resume, evaluate, export, bench, sweep, report, presets, scale, llm."""

import os
import shutil
import sys
import traceback
from dataclasses import dataclass, fields, make_dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union

import tyro

from swell.bench.command import Bench, bench
from swell.config.imports import find_own_modules
from swell.config.options import GROUPS, Option, options, sentences
from swell.config.own_envs import is_assignment, kwargs_of
from swell.config.run_config import RunConfig, require_read
from swell.config.validation import ChoiceOrImport
from swell.errors import ConfigError, SwellError, is_said_elsewhere
from swell.presets import describe_presets, preset_config
from swell.report.command import Report, report
from swell.sweep.command import Sweep, sweep


@dataclass(frozen=True)
class Train:
    """Train an agent on ENV in a new run directory.

    The preset sets every default below; each option can be changed on its own. Shown are the options that the algorithm
    and the scaler read; --help-all shows every one.
    """

    config: RunConfig
    out: Path | None = None
    """Run directory; by default runs/<env>-<algorithm>-<scaler>-s<seed>. One that holds a run is never overwritten."""
    new: bool = False
    """Take the next free name (…-2, …-3) where the run directory is in use."""
    processes: int = 1
    """Processes of this machine that share the run, each with a part of the envs; under torchrun it says how many.
    Small networks are slower with more than one: docs/processes.md."""
    on: Literal["local", "ray"] = "local"
    """Where the processes run: on this machine, or on a Ray cluster that shares the run directory."""
    workers: int = 2
    """Ray: processes that share the run."""
    cpus_per_worker: float = 1.0
    """Ray: CPUs that it reserves for each."""
    gpus_per_worker: float = 0.0
    """Ray: GPUs that it reserves for each; 0 or 1."""
    address: str | None = None
    """Ray: address of the cluster, such as `auto` or `ray://head:10001`; by default a Ray of this machine alone."""
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
    """New total of env steps, to go on for longer than first asked; never fewer than are done."""
    set: tuple[str, ...] = ()
    """Options to change from now on, as `learning_rate=1e-4 epochs=4`; docs/configuration.md says which can be."""
    processes: int = 1
    """Processes of this machine that share the run; with another number than before, unfinished episodes start anew."""
    trust: bool = False
    """Import what the directory names, whoever made it: envs and parts that are of no installed package."""
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
    render: bool = False
    """First play one episode in the env's own window."""
    trust: bool = False
    """Import what the directory names, whoever made it: envs and networks that are of no installed package."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class Export:
    """Write the greedy policy of a run as one file for other programs, with a model card, and check it."""

    directory: tyro.conf.Positional[Path]
    """Run directory."""
    format: Literal["onnx", "torchscript", "state-dict"] = "onnx"
    """Kind of file; onnx needs the extra of that name."""
    out: Path | None = None
    """Where to write; by default export/<format> in the run directory."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which weights to take."""
    trust: bool = False
    """Import what the directory names, whoever made it: a network that is of no installed package."""
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
class Llm:
    """Train language models: GRPO on TRL with a batch that grows. `swell llm --help` lists its commands."""


@dataclass(frozen=True)
class Compile:
    """Compile the kernels of small networks, once for this machine; a long run does so by itself."""


Command = Train | Resume | Evaluate | Export | Presets | Scale | Bench | Sweep | Report | Compile | Llm

NO_ENV = "ENV"
"""Stands in for an env that the command line does not name."""


def main() -> None:
    """Runs one command; every failure ends in one line and its exit code."""
    arguments = sys.argv[1:]
    find_own_modules()
    try:
        if arguments[:1] == ["llm"]:
            language_models(arguments[1:])
        else:
            execute(parse(arguments))
        sys.stdout.flush()
    except SwellError as error:
        _fail(error, error.exit_code, arguments)
    except KeyboardInterrupt:
        _fail(SwellError("stopped at once; `swell resume` goes on from the newest checkpoint"), 130, arguments)
    except BrokenPipeError:
        _end_quietly()
    except Exception as error:  # the last line of defence: no traceback unless asked for
        _fail(error, 1, arguments)


def _end_quietly() -> NoReturn:
    """Whoever read our output has gone, as `head` does: nothing is left to say, not even by Python at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)  # 128 + SIGPIPE, a name that Windows does not have


def parse(arguments: list[str]) -> Command:
    """Parses `train` twice: to learn the env and the preset, then with that preset's values as the defaults."""
    if arguments[:1] != ["train"]:
        other = _parse_with(arguments, TrainCommand(RunConfig(env=NO_ENV), list(options())))
        assert not isinstance(other, Draft)
        return other
    wants_all, wants_help = "--help-all" in arguments, bool({"-h", "--help", "--help-all"} & set(arguments))
    asked = [argument for argument in arguments if argument not in ("-h", "--help", "--help-all")]
    draft = _parse_with(asked, TrainCommand(RunConfig(env=NO_ENV), list(options())))
    assert isinstance(draft, Draft)
    env, preset = draft.values["env"], draft.values["preset"]
    if env == NO_ENV and not wants_help:
        raise ConfigError("env is missing: name one, for example `swell train CartPole-v1`")
    given = _given(asked)
    is_open = env == NO_ENV and not {"preset", "algorithm"} & set(given)
    defaults = RunConfig(env) if is_open else preset_config(preset, env, draft.values["algorithm"])
    if wants_help:
        parts = {name: draft.values[name] for name in ("algorithm", "scaler", "signal") if name in given}
        chosen = replace(defaults, **parts)
        shown = [name for name in options() if wants_all or name in chosen.read_options]
        _parse_with([*asked, "--help"], TrainCommand(chosen, shown))
    command = _parse_with(asked, TrainCommand(defaults, list(options())))
    assert isinstance(command, Draft)
    values: dict[str, Any] = {**command.values, "preset": defaults.preset}
    config = RunConfig(**values)
    require_read(config, given)
    return replace(command.train, config=config)


def _given(arguments: list[str]) -> list[str]:
    """The options that a command line names."""
    flags = (argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--"))
    names = (flag.removeprefix("no-").replace("-", "_") for flag in flags)
    return ["total_env_steps" if name == "steps" else name for name in names if name in (*options(), "steps")]


def execute(command: Command) -> None:
    if isinstance(command, Presets):
        list_presets()
    elif isinstance(command, Scale):
        scale(command)
    elif isinstance(command, Evaluate):
        evaluate(command)
    elif isinstance(command, Export):
        export(command)
    elif isinstance(command, Bench):
        bench(command)
    elif isinstance(command, Sweep):
        sweep(command)
    elif isinstance(command, Report):
        report(command)
    elif isinstance(command, Compile):
        compile_kernels()
    elif isinstance(command, Llm):
        language_models([])
    else:
        train_or_resume(command)


def compile_kernels() -> None:
    from swell.runs.compiling import compile_kernels as compile_all

    print(compile_all())


def language_models(arguments: list[str]) -> None:
    """Commands with a parser of their own: their options are TRL's."""
    from swell.llm.command import main as run_command

    run_command(arguments)


def list_presets() -> None:
    presets = describe_presets()
    width = max(len(name) for name, _ in presets)
    for name, text in presets:
        print(f"{name:<{width}}  {text}")


def scale(command: Scale) -> None:
    from swell.batch.rules import scale_report

    for name in ("from_batch", "to_batch"):
        if getattr(command, name) < 1:
            raise ConfigError(f"{name} must be at least 1, got {getattr(command, name)}")
    print(scale_report(preset_config(command.preset, command.env), command.from_batch, command.to_batch))


def train_or_resume(command: Train | Resume) -> None:
    from swell import ranks  # imports torch
    from swell.display.console import patient_console, say
    from swell.runs import launch
    from swell.runs.start import begin_or_continue, resume, run

    launch.require_possible(command.processes, isinstance(command, Train) and command.new)
    if isinstance(command, Train):
        require_own_options(command)
    if isinstance(command, Train) and command.on == "ray":
        from swell.runs.ray_train import train_on_ray

        each = (command.workers, command.cpus_per_worker, command.gpus_per_worker)
        summary = train_on_ray(command.config, command.out, command.new, command.address, *each)
    elif isinstance(command, Train) and command.processes > 1:
        where = (command.out, command.new, command.quiet)
        summary = launch.train_in_processes(command.config, *where, command.processes)
    elif isinstance(command, Resume) and command.processes > 1:
        if command.set:
            raise ConfigError(f"set is for one process, got --processes {command.processes}; resume once without it")
        how = (command.steps, command.quiet, command.processes, command.trust)
        summary = launch.resume_in_processes(command.directory, *how)
    else:
        with ranks.join():
            if isinstance(command, Resume):
                how = {"total_env_steps": command.steps, "quiet": command.quiet, "trust": command.trust}
                summary = resume(command.directory, **how, **_changes(command))
            elif ranks.is_launched():
                summary = begin_or_continue(command.config, command.out, quiet=command.quiet)
            else:
                summary = run(command.config, command.out, new=command.new, quiet=command.quiet)
            if not ranks.is_first():
                return
    say(_report(summary), patient_console())
    if isinstance(command, Train) and command.report:
        report(Report((Path(summary["directory"]),)))


def require_own_options(command: Train) -> None:
    """An option of Ray is not for processes of this machine, nor the other way round."""
    unread = ("processes",) if command.on == "ray" else ("workers", "cpus_per_worker", "gpus_per_worker", "address")
    defaults = {field.name: field.default for field in fields(Train)}
    faults = [
        f"{name} is not read with --on {command.on}, got {getattr(command, name)}"
        for name in unread
        if getattr(command, name) != defaults[name]
    ]
    if faults:
        raise ConfigError(*faults)


def _changes(command: Resume) -> dict[str, Any]:
    """What `--set` asks for."""
    wrong = [word for word in command.set if not is_assignment(word)]
    if wrong:
        raise ConfigError(*(f"set must be option=value, got {word!r}" for word in wrong))
    return {name.replace("-", "_"): value for name, value in kwargs_of(command.set).items()}


def evaluate(command: Evaluate) -> None:
    from swell.runs import agent  # imports torch

    how = (command.episodes, command.checkpoint, command.seed, command.video)
    row = agent.evaluate(command.directory, *how, render=command.render, quiet=False, trust=command.trust)
    print(
        f"return {row['mean_return']:.2f} ± {row['std_return']:.2f} over {row['episodes']} greedy episodes "
        f"(min {min(row['returns']):g}, max {max(row['returns']):g}), weights of env step {row['env_steps']:,}"
    )
    if row["cut_episodes"]:
        print(f"{row['cut_episodes']} of them did not end and were cut off; max_evaluation_steps of the run says where")
    if command.video is not None:
        print(f"video: {command.video}")


def export(command: Export) -> None:
    from swell.runs.export import CARD, CHECKED, export as export_policy  # imports torch

    path = export_policy(command.directory, command.format, command.out, command.checkpoint, command.trust)
    print(f"{path}: does what the policy does on {CHECKED:,} observations; {path.parent / CARD} says what it is")


def _report(summary: dict[str, Any]) -> str:
    from swell.display.words import summary_report
    from swell.runs.description import read_description
    from swell.runs.logs import read_jsonl
    from swell.runs.trust import code_named_by

    directory = summary["directory"]
    rows = read_jsonl(Path(directory) / "metrics.jsonl")
    # What was planned: the very last rollout is cut to the run's total.
    horizons = [row["horizon"] for row in rows[:1]] + [row["next_horizon"] for row in rows[:-1]]
    config = read_description(Path(directory))["config"]
    total = config["total_env_steps"]
    longer = total if summary["env_steps"] < total else 2 * total
    return summary_report(summary, horizons, next_commands(directory, longer, bool(code_named_by(config))))


def next_commands(directory: str, longer: int, names_code: bool = False) -> list[str]:
    """What one might try now: with what is installed, and by a path where `swell` itself is not found."""
    swell = "swell" if shutil.which("swell") else sys.argv[0]
    video = f" --video {Path(directory) / 'agent.mp4'}" if find_spec("imageio") else ""
    other = "MinAtar/Breakout-v1" if find_spec("minatar") else "Acrobot-v1"
    trust = " --trust" if names_code else ""
    return [
        f"{swell} evaluate {directory}{video}{trust}",
        f"{swell} report {directory}",
        f"{swell} resume {directory} --steps {longer}{trust}",
        f"{swell} train {other}",
        f"{swell} presets",
    ]


@dataclass(frozen=True)
class Draft:
    """`train` as it was parsed: the values of its options, not yet checked against each other."""

    train: Train
    values: dict[str, Any]


class TrainCommand:
    """The command line of `train`: a group of options for each theme, with the values of a config as their defaults."""

    def __init__(self, defaults: RunConfig, shown: list[str]) -> None:
        self._defaults = defaults
        groups = {group: [options()[name] for name in shown if options()[name].group == group] for group in GROUPS}
        self._groups = {group: _group_of_options(group, members) for group, members in groups.items() if members}
        of_command = [
            (field.name, Annotated[field.type, tyro.conf.arg(help=sentences(Train)[field.name])], field.default)
            for field in fields(Train)
            if field.name != "config"
        ]
        self.type = make_dataclass("Train", [*self._groups.items(), *of_command], frozen=True, kw_only=True)
        self.type.__doc__ = Train.__doc__

    @property
    def default(self) -> Any:
        groups = {
            group: kind(**{field.name: getattr(self._defaults, field.name) for field in fields(kind)})
            for group, kind in self._groups.items()
        }
        return self.type(**groups)

    def draft(self, parsed: Any) -> Draft:
        values = {name: value for group in self._groups for name, value in vars(getattr(parsed, group)).items()}
        of_command = {field.name: getattr(parsed, field.name) for field in fields(Train) if field.name != "config"}
        return Draft(Train(self._defaults, **of_command), values)


def _group_of_options(group: str, members: list[Option]) -> type:
    made = make_dataclass(group, [(option.name, _with_help(option)) for option in members], frozen=True, kw_only=True)
    made.__doc__ = ""
    return made


def _with_help(option: Option) -> Any:
    choices = [note for note in getattr(option.hint, "__metadata__", ()) if isinstance(note, ChoiceOrImport)]
    metavar = f"{{{','.join(choices[0].choices)},MODULE:NAME}}" if choices else None
    metavar = "ENV" if option.name == "env" else metavar
    name = "steps" if option.name == "total_env_steps" else None
    return Annotated[option.hint, tyro.conf.arg(help=option.text, metavar=metavar, name=name)]


def _parse_with(arguments: list[str], command: TrainCommand) -> Command | Draft:
    train = Annotated[command.type, tyro.conf.subcommand("train", default=command.default)]
    commands = Union[  # noqa: UP007  # the alternatives are values, not names
        train,
        Annotated[Resume, tyro.conf.subcommand("resume")],
        Annotated[Evaluate, tyro.conf.subcommand("evaluate")],
        Annotated[Export, tyro.conf.subcommand("export")],
        Annotated[Bench, tyro.conf.subcommand("bench")],
        Annotated[Sweep, tyro.conf.subcommand("sweep")],
        Annotated[Report, tyro.conf.subcommand("report")],
        Annotated[Presets, tyro.conf.subcommand("presets")],
        Annotated[Scale, tyro.conf.subcommand("scale")],
        Annotated[Compile, tyro.conf.subcommand("compile")],
        Annotated[Llm, tyro.conf.subcommand("llm")],
    ]
    parsed = tyro.cli(  # pyright: ignore[reportCallIssue]  # a union of annotated types is no type to pyright
        commands,  # pyright: ignore[reportArgumentType]
        prog="swell",
        description="Reinforcement learning whose batch grows as the policy settles.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.ConsolidateSubcommandArgs),
    )
    return command.draft(parsed) if isinstance(parsed, command.type) else parsed


def _fail(error: BaseException, exit_code: int, arguments: list[str]) -> NoReturn:
    if "--debug" in arguments:
        traceback.print_exception(error)
    if is_said_elsewhere(error):
        sys.exit(exit_code)
    lines = str(error).splitlines() or [type(error).__name__]
    if exit_code == 1 and not isinstance(error, SwellError):
        lines = [f"unexpected {type(error).__name__}: {lines[0]}; --debug shows the traceback"]
    for line in lines:
        print(f"swell: {line}", file=sys.stderr)
    sys.exit(exit_code)
