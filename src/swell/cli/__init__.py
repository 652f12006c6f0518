"""The command line: train, resume, evaluate, export, bench, sweep, report, presets, scale, llm."""

import os
import sys
import traceback
from typing import NoReturn

from swell.cli.execution import execute, language_models
from swell.cli.parsing import parse
from swell.errors import SwellError, is_said_elsewhere


def main() -> None:
    """Runs one command; every failure ends in one line and its exit code."""
    arguments = sys.argv[1:]
    sys.path.append(os.getcwd())  # so that `module:Env-v0` finds the user's own module
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
