"""What each command does. Heavy imports wait until they are needed."""

import os
import shlex
import shutil
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swell.bench.command import Bench, bench
from swell.cli.commands import Command, Compile, Evaluate, Export, Llm, Presets, Resume, Scale, Train
from swell.config.options import as_option
from swell.config.own_envs import is_assignment, kwargs_of
from swell.errors import ConfigError
from swell.presets import describe_presets, preset_config
from swell.report.command import Report, report
from swell.sweep.command import Sweep, sweep


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
    first_look(command)
    from swell import ranks  # imports torch
    from swell.display.console import patient_console, say
    from swell.runs import launch
    from swell.runs.start import begin_or_continue, resume, run

    launch.require_possible(command.processes, isinstance(command, Train) and command.new)
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


def first_look(command: Train | Resume) -> None:
    """Refuses what can be refused at once, and says why nothing happens for the next seconds."""
    if "RANK" in os.environ:  # one of torchrun's processes, which continue a run where they are started again
        return
    from swell.runs.first_checks import require_run, require_startable

    if isinstance(command, Train):
        require_own_options(command)
        require_startable(command.config, command.out, command.new)
    else:
        require_run(command.directory)
    if not command.quiet:
        say_that_torch_loads()


def say_that_torch_loads() -> None:
    from swell.display.console import patient_console, say

    if "torch" not in sys.modules:
        say("loading PyTorch", patient_console())


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
    named = {word.replace("-", "_"): value for word, value in kwargs_of(command.set).items()}
    return {name: as_option(name, value) for name, value in named.items()}


def evaluate(command: Evaluate) -> None:
    from swell.display.console import is_live_terminal
    from swell.runs.first_checks import require_evaluable

    require_evaluable(command.directory, command.episodes, command.seed, command.video)
    if is_live_terminal():  # into a file or a pipe goes the score, without a word on libraries
        say_that_torch_loads()
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
    from swell.display.console import is_live_terminal
    from swell.runs.first_checks import require_run

    require_run(command.directory)
    if is_live_terminal():
        say_that_torch_loads()
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
    swell = "swell" if shutil.which("swell") else shlex.quote(sys.argv[0])
    if sys.argv[0].endswith("__main__.py"):
        swell = f"{shlex.quote(sys.executable)} -m swell"
    run, film = shlex.quote(directory), shlex.quote(str(Path(directory) / "agent.mp4"))
    video = f" --video {film}" if find_spec("imageio") else ""
    other = "MinAtar/Breakout-v1" if find_spec("minatar") else "Acrobot-v1"
    trust = " --trust" if names_code else ""
    return [
        f"{swell} evaluate {run}{video}{trust}",
        f"{swell} report {run}",
        f"{swell} resume {run} --steps {longer}{trust}",
        f"{swell} train {other}",
        f"{swell} presets",
    ]
