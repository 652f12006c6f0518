"""`swell llm`: train, resume and demo. TRL is imported by the command that needs it, not by this file."""

import argparse
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from swell.config.validation import did_you_mean
from swell.display.console import patient_console, say
from swell.errors import ConfigError
from swell.runs.interrupt import InterruptedRunError

USAGE = """usage: swell llm COMMAND [options]

GRPO on TRL, with the ESS objective and a batch that grows as the policy settles. Needs pip install "swell-rl[trl]".

  train     Train a model on a file of prompts with a reward function of your own, in a new run directory.
  resume    Continue a run from its newest whole checkpoint, after any kind of end.
  demo      Watch a small transformer learn to sort digits: made on the spot, no downloads, three minutes on one core.

`swell llm train --help` shows the options of train; `swell report RUN` makes a page of any run.
"""
COMMANDS = ("train", "resume", "demo")


def main(arguments: list[str]) -> None:
    """Runs one command; faults are raised as errors with a line and an exit code."""
    command, rest = (arguments or ["--help"])[0], arguments[1:]
    if command in ("-h", "--help"):
        print(USAGE, end="")
        return
    if command not in COMMANDS:
        raise ConfigError(
            f"swell llm has no command {command!r}: it has {', '.join(COMMANDS)}{did_you_mean(command, COMMANDS)}"
        )
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        {"train": train, "resume": resume, "demo": demo}[command](rest)
    except KeyboardInterrupt as error:
        text = "stopped at once; `swell llm resume` goes on from the newest checkpoint"
        raise InterruptedRunError(text, signal.SIGINT) from error


def train(arguments: list[str]) -> None:
    require_trl()
    from swell.llm.model_run import asked_run
    from swell.llm.options import parse
    from swell.llm.session import start

    asked = parse(arguments, "swell llm train", named=True)
    summary = start(asked_run(asked), asked.run.out, new=asked.run.new, quiet=asked.run.quiet)
    tell(summary, asked.run.report)


def demo(arguments: list[str]) -> None:
    require_trl()
    from swell.llm import demo as sorting
    from swell.llm.options import parse

    tell(sorting.demo(parse(arguments, "swell llm demo", named=False, **sorting.SETTINGS)), report=True)


def resume(arguments: list[str]) -> None:
    parser = _Parser(prog="swell llm resume", description="Continue a run from its newest whole checkpoint.")
    parser.add_argument("directory", type=Path, help="run directory")
    parser.add_argument("--total-completions", type=int, help="new length of the run, to go on for longer")
    parser.add_argument(
        "--report", action="store_true", help="also write report.html into the run directory at the end"
    )
    parser.add_argument("--trust", action="store_true", help="import what the directory names, whoever made it")
    parser.add_argument("--quiet", action="store_true", help="print only the summary at the end")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    asked = parser.parse_args(arguments)
    require_trl()
    from swell.llm.session import resume as go_on

    tell(go_on(asked.directory, asked.total_completions, quiet=asked.quiet, trust=asked.trust), asked.report)


def require_trl() -> None:
    """One line where TRL is not installed, whatever else would have been wrong."""
    import swell.llm.config  # noqa: F401  # pyright: ignore[reportUnusedImport]


def tell(summary: dict[str, Any], report: bool) -> None:
    """What a person wants to know at the end."""
    from swell.llm.checkpoints import newest_checkpoint
    from swell.llm.panel import closing_words
    from swell.llm.session import is_first_process
    from swell.report.command import Report, report as write
    from swell.runs.description import read_description
    from swell.runs.logs import read_jsonl

    if not is_first_process():
        return
    directory = Path(summary["directory"])
    batches = [row["batch"] for row in read_jsonl(directory / "metrics.jsonl")]
    evaluations = read_jsonl(directory / "evaluations.jsonl")
    weights = newest_checkpoint(directory, moves=False)
    config = read_description(directory)["config"]
    commands = next_commands(directory, config)
    say(closing_words(summary, batches, evaluations, str(weights[0]) if weights else "", commands), patient_console())
    if report:
        write(Report((directory,)))


def next_commands(directory: Path, config: dict[str, Any]) -> list[str]:
    """What one might try now, by a path where `swell` itself is not found."""
    swell = "swell" if shutil.which("swell") else shlex.quote(sys.argv[0])
    run = shlex.quote(str(directory))
    longer = f" --total-completions {2 * config['total_completions']}"
    return [
        f"{swell} report {run}",
        *([f"{swell} llm resume {run}{longer}"] if config["batch_scaler"] != "none" else []),
        f"{swell} llm demo --loss-type dapo",
        f"{swell} llm train --help",
    ]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}")
