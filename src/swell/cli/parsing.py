"""From words to a command. `train` takes its defaults from the preset that its words name."""

from dataclasses import dataclass, fields, make_dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Union

import tyro

from swell.bench.command import Bench
from swell.cli.commands import (
    Command,
    Compile,
    Evaluate,
    Export,
    Llm,
    Presets,
    Resume,
    Scale,
    Train,
)
from swell.config.options import GROUPS, Option, options, sentences
from swell.config.run_config import RunConfig, require_read
from swell.config.validation import ChoiceOrImport, whole_number
from swell.errors import ConfigError
from swell.presets import preset_config, require_agreement
from swell.report.command import Report
from swell.sweep.command import Sweep

NO_ENV = "ENV"
"""Stands in for an env that the command line does not name."""
PLACES = ("--out", "--video")
"""Options that say where to write."""


def parse(arguments: list[str]) -> Command:
    """Parses `train` twice: to learn the env and the preset, then with that preset's values as the defaults."""
    _require_places(arguments)
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
    if "algorithm" in given:
        require_agreement(defaults, command.values["algorithm"])
    values: dict[str, Any] = {**command.values, "preset": defaults.preset}
    config = RunConfig(**values)
    require_read(config, given)
    return replace(command.train, config=config)


def _require_places(arguments: list[str]) -> None:
    """An empty place, as of a shell variable that is not set, would be taken for the current directory."""
    for option, value in pairwise([*arguments, "none"]):
        if (option in PLACES and value == "") or option in {f"{place}=" for place in PLACES}:
            raise ConfigError(f"{option.rstrip('=')} must name a place, got ''")


def _given(arguments: list[str]) -> list[str]:
    """The options that a command line names."""
    flags = (argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--"))
    names = (flag.removeprefix("no-").replace("-", "_") for flag in flags)
    return ["total_env_steps" if name == "steps" else name for name in names if name in (*options(), "steps")]


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
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(_whole_numbers)
    parsed = tyro.cli(  # pyright: ignore[reportCallIssue]  # a union of annotated types is no type to pyright
        commands,  # pyright: ignore[reportArgumentType]
        prog="swell",
        description="Reinforcement learning whose batch grows as the policy settles. `swell --version` says which one.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.ConsolidateSubcommandArgs),
        registry=registry,
    )
    return command.draft(parsed) if isinstance(parsed, command.type) else parsed


def _whole_numbers(
    type_info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    """Any option that is a whole number also takes `1e5` and `2.5e6`."""
    if type_info.type is not int:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )
