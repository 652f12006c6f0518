"""`python -m swell`, and the command `swell`: what happens before anything is imported that takes time."""

import os
import signal
import sys


def start() -> None:
    """Until a command listens, Ctrl-C ends the process as the system does: the traceback of an import helps nobody."""
    told_by_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if told_by_python:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from swell.cli import main

    if told_by_python:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    # `python -m` looks into the current directory first: a file there must not take the place of an installed package.
    if not sys.flags.safe_path and os.path.exists(".") and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]
    start()
