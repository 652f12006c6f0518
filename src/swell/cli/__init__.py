"""The command line: train, resume, evaluate, export, bench, sweep, report, presets, scale, llm."""

import sys

from swell import __version__
from swell.cli.endings import end_quietly, fail, flush_output, write_what_streams_can
from swell.cli.execution import execute, language_models
from swell.cli.parsing import parse
from swell.config.imports import find_own_modules
from swell.errors import SwellError

STOPPED_AT_ONCE = {
    **dict.fromkeys(("train", "resume"), "stopped at once; `swell resume` goes on from the newest checkpoint"),
    **dict.fromkeys(("bench", "sweep"), "stopped at once; the same command goes on"),
}
"""What a second Ctrl-C leaves to do; of the other commands, nothing."""


def main() -> None:
    """Runs one command; every failure ends in one line and its exit code."""
    arguments = sys.argv[1:]
    find_own_modules()
    write_what_streams_can()
    try:
        if arguments[:1] == ["--version"]:
            print(f"swell {__version__}")
        elif arguments[:1] == ["llm"]:
            language_models(arguments[1:])
        else:
            execute(parse(arguments))
        flush_output()
    except KeyboardInterrupt:
        fail(SwellError(STOPPED_AT_ONCE.get("".join(arguments[:1]), "stopped at once")), arguments, 130)
    except BrokenPipeError:
        end_quietly()
    except Exception as error:  # the last line of defence: no traceback unless asked for
        fail(error, arguments)
