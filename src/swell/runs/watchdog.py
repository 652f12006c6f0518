"""Notices an env that hangs: a step or a reset from which the main thread does not come back."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import swell.envs
from swell.envs.contract import OTHER_LIMIT
from swell.errors import EnvironmentFailedError

TICK_SECONDS = 1.0
"""Time is counted in ticks of the watching thread. One that was stopped with its process, or slept with its machine,
has missed a tick and not the hour that has passed meanwhile."""
GRACE_SECONDS = 3.0
"""For the main thread to raise the error itself, before the process is ended from here."""

ENVS = str(Path(swell.envs.__file__).parent) + os.sep
WATCHED_THERE = ENVS + "workers.py"
PLAYS = ("step", "reset", "restart")
"""What the envs of a run do that may hang. Making many of them may take minutes, and is no single call."""


class HungEnv(BaseException):
    """Raised in the middle of an env's own code, which must not take it for an exception of its own."""


class Watchdog:
    """While active, a step or reset that takes longer than `seconds` ends in an EnvironmentFailedError.

    A thread looks now and then where the main thread is, which costs a step nothing. It asks it by a signal to raise
    the error; code in C that never hears it is ended with the process, after `before_the_end` was called.

    It does nothing with 0 seconds, outside the main thread, on systems without the signal, and while a debugger traces
    the code; and it cannot see code in C that keeps the interpreter's lock.
    """

    def __init__(self, seconds: float, before_the_end: Callable[[], None] = lambda: None) -> None:
        self._seconds = seconds
        self._tick = min(TICK_SECONDS, seconds / 10)
        self._before_the_end = before_the_end
        self._is_over = threading.Event()
        self._hung: FrameType | None = None
        self._reason = ""
        self._thread: threading.Thread | None = None
        self._previous: Any = None

    def __enter__(self) -> "Watchdog":
        main = threading.main_thread()
        if self._seconds and hasattr(signal, "SIGURG") and threading.current_thread() is main and main.ident:
            self._previous = signal.signal(signal.SIGURG, self._raise_if_still_there)
            self._thread = threading.Thread(target=self._watch, args=(main.ident,), daemon=True, name="env watchdog")
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            signal.signal(signal.SIGURG, self._previous)
        if kind is HungEnv:
            raise EnvironmentFailedError(self._reason) from error

    def _watch(self, main: int) -> None:
        call, ticks = None, 0
        while not self._is_over.wait(self._tick):
            stack = _stack_of(main)
            seen = _env_call(stack)
            ticks = ticks + 1 if seen is not None and seen is call else 0
            call = seen
            if call is not None and ticks * self._tick >= self._seconds:
                self._hung, self._reason = call, _reason(call, stack[0], self._seconds)
                signal.pthread_kill(main, signal.SIGURG)
                if not self._is_over.wait(GRACE_SECONDS) and call in _stack_of(main):
                    self._before_the_end()
                    print(f"swell: {self._reason}", file=sys.stderr, flush=True)
                    os._exit(EnvironmentFailedError.exit_code)

    def _raise_if_still_there(self, number: int, frame: FrameType | None) -> None:
        """The call may have ended in the moment before the signal came."""
        if self._hung is not None and self._hung in _outwards(frame):
            raise HungEnv


def _stack_of(thread: int) -> list[FrameType]:
    """The innermost first."""
    return list(_outwards(sys._current_frames().get(thread)))  # pyright: ignore[reportPrivateUsage]


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _env_call(stack: list[FrameType]) -> FrameType | None:
    """Of a stack, innermost first, the innermost call of ours that is in an env: one env's, where they play in turn."""
    ours = [frame for frame in stack if frame.f_code.co_filename.startswith(ENVS)]
    is_playing = any(frame.f_code.co_name in PLAYS for frame in ours)
    is_traced = any(frame.f_trace is not None for frame in stack)
    is_watched = ours[:1] and ours[0].f_code.co_filename != WATCHED_THERE
    return ours[0] if is_playing and is_watched and not is_traced else None


def _reason(call: FrameType, innermost: FrameType, seconds: float) -> str:
    envs = call.f_locals.get("self")
    whose = getattr(envs, "place", "an env")
    code = innermost.f_code
    return (
        f"{whose}: no answer for {seconds:g} s, in {code.co_name} of {Path(code.co_filename).name}, "
        f"line {innermost.f_lineno}; {OTHER_LIMIT}"
    )
