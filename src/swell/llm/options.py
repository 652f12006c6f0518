"""The command line of `swell llm train`: options of the command, then Swell's, then all of TRL's GRPOConfig."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from typing import Any, NoReturn, TypeVar, cast, get_type_hints

from transformers import HfArgumentParser

from swell.config.validation import did_you_mean
from swell.errors import ConfigError
from swell.llm.config import GRPOConfig

CHECKPOINTS = 20
HELP = {"-h", "--help", "--help-all"}


def _option(default: Any, sentence: str) -> Any:
    return field(default=default, metadata={"help": sentence})


@dataclass
class RunOptions:
    """What every command takes beside the fields of GRPOConfig."""

    out: str | None = _option(None, "Run directory; one that holds a run is never overwritten. By default under runs/.")
    new: bool = _option(False, "Take the next free name (…-2, …-3) where the run directory is in use.")
    label: str | None = _option(None, "What the report calls this run.")
    checkpoints: int = _option(
        CHECKPOINTS, "Checkpoints over the run, evenly in completions. save_strategy and save_steps take their place."
    )
    report: bool = _option(False, "Also write report.html into the run directory at the end.")
    quiet: bool = _option(False, "Print only the summary at the end.")
    debug: bool = _option(False, "Show the traceback of an error.")


@dataclass
class Sources:
    """What `train` trains: every one must be named."""

    model: str | None = _option(None, "Directory of a model, or its id on the Hub.")
    dataset: str | None = _option(
        None, "Prompts: a .jsonl, .json, .csv or .parquet file with a column prompt, a directory, or an id on the Hub."
    )
    reward: list[str] = field(
        default_factory=list[str],
        metadata={
            "help": "MODULE:FUNCTION that scores completions, as TRL calls it: completions, prompts and the other "
            "columns in, one number per completion out. Several are added up."
        },
    )
    eval_dataset: str | None = _option(None, "Prompts to evaluate on at the end, and when eval_strategy says.")


Kind = TypeVar("Kind", RunOptions, Sources)


@dataclass(frozen=True)
class Asked:
    """A command line, parsed."""

    run: RunOptions
    sources: Sources
    config: dict[str, Any]
    """Fields of GRPOConfig that were named."""


def parse(arguments: Sequence[str], command: str, named: bool, **defaults: Any) -> Asked:
    """`named` where model, dataset and reward are options; `defaults` are shown in the help."""
    parser = _parser(command, named, defaults)
    if asked := HELP & set(arguments):
        parser.show_help("--help-all" in asked)
    for action in parser.actions_of(GRPOConfig):
        action.default = argparse.SUPPRESS  # so that what was not named is absent
    values, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        raise ConfigError(*_unknown(unknown, parser))
    given = vars(values)
    run, sources = _taken(RunOptions, given), _taken(Sources, given)
    if "output_dir" in given:
        run.out = run.out or given.pop("output_dir")
    return Asked(run, sources, given)


def _taken(kind: type[Kind], given: dict[str, Any]) -> Kind:
    """One dataclass of what was given; its options are taken out."""
    return kind(**{f.name: given.pop(f.name) for f in fields(cast(Any, kind)) if f.name in given})


def _unknown(words: Sequence[str], parser: "_Parser") -> list[str]:
    known = [name for name in parser.option_names if "_" not in name]
    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
    faults = [f"unknown option {flag}{did_you_mean(flag.replace('_', '-'), known)}" for flag in flags]
    return faults or [f"{word!r} is no option; options begin with --" for word in words[:1]]


def _parser(command: str, named: bool, defaults: dict[str, Any]) -> "_Parser":
    kinds = [_group("what to train", Sources)] if named else []
    kinds.append(_group("the run", RunOptions))
    own, theirs = _split(GRPOConfig)
    kinds += [
        _group("the batch and the objective (Swell)", GRPOConfig, own, defaults),
        _group("everything else (TRL)", GRPOConfig, theirs, defaults),
    ]
    needed = " --model DIR_OR_ID --dataset FILE.jsonl --reward MODULE:FUNCTION" if named else ""
    return _Parser(kinds, prog=command, usage=f"{command}{needed} [options]", theirs=theirs)


def _split(kind: type) -> tuple[list[str], list[str]]:
    """The fields that Swell added or changed, and TRL's own; a name that the command has (debug) is the command's."""
    own = list(kind.__annotations__)
    taken = {f.name for f in (*fields(RunOptions), *fields(Sources))}
    return own, [f.name for f in fields(kind) if f.name not in own and f.name not in taken]


def _group(title: str, kind: type, names: Sequence[str] | None = None, defaults: dict[str, Any] | None = None) -> type:
    """A dataclass of some fields of another, which makes one group of options."""
    hints = get_type_hints(kind)
    by_name = {f.name: f for f in fields(kind) if f.init}
    chosen = [by_name[name] for name in names or by_name if name in by_name]
    made = make_dataclass(title, [(f.name, hints[f.name], _copied(f, defaults or {})) for f in chosen])
    made._argument_group_name = title
    return made


def _copied(original: Field[Any], defaults: dict[str, Any]) -> Any:
    if original.name in defaults:
        return field(default=defaults[original.name], metadata=original.metadata)
    if original.default_factory is not MISSING:
        return field(default_factory=original.default_factory, metadata=original.metadata)
    return field(default=original.default, metadata=original.metadata)


class _Parser(HfArgumentParser):
    """Hugging Face's parser of dataclasses, whose errors are ours and whose help is in groups."""

    def __init__(self, kinds: Sequence[type], prog: str, usage: str, theirs: Sequence[str]) -> None:
        super().__init__(
            cast(Any, kinds), prog=prog, add_help=False, allow_abbrev=False, formatter_class=_Help, usage=usage
        )
        self._theirs = set(theirs)
        for action in self.actions_of(GRPOConfig):
            if action.dest in ("calm_reading", "volatile_reading"):
                action.type = str  # a number or auto; the config sees to it

    def actions_of(self, kind: type) -> list[argparse.Action]:
        names = {f.name for f in fields(kind)} - {f.name for f in fields(RunOptions)}
        return [action for action in self._actions if action.dest in names]

    @property
    def option_names(self) -> list[str]:
        return list(cast("dict[str, Any]", self._option_string_actions))

    def show_help(self, everything: bool) -> NoReturn:
        for action in self._actions:
            negation = action.option_strings[0].startswith("--no_") and isinstance(action.const, bool)
            if negation or (not everything and action.dest in self._theirs):
                action.help = argparse.SUPPRESS
        self.print_help()
        if not everything:
            print("\nEvery other option of TRL's GRPOConfig works as well: --help-all lists them.")
        sys.exit(0)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(re.sub(r"^argument (?:\S+/)?(--\S+):", r"\1:", message))


class _Help(argparse.HelpFormatter):
    """Each option once, with hyphens, and its default where there is one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=120)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        name = next((flag for flag in action.option_strings if "_" not in flag), action.option_strings[0])
        if action.type is not None and getattr(action.type, "__name__", "") == "string_to_bool":
            return f"{name}, --no-{name[2:]}" if action.default is True else name
        if action.choices is not None:
            return f"{name} {{{','.join(map(str, action.choices))}}}"
        words = {int: "N", float: "X"}
        return f"{name} {words.get(cast(Any, action.type), 'TEXT')}"

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        known = action.default is not None and action.default not in ("", [], False, argparse.SUPPRESS)
        return f"{text} (default: {action.default})" if known else text
