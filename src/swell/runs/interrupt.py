"""Ctrl-C and SIGTERM: a flag that the run reads between two iterations."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from swell.errors import SwellError

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedRunError(SwellError):
    """The run was asked to stop; everything is saved."""

    is_everyones = True

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


class StopRequest:
    """While active, the first signal only raises a flag; a second Ctrl-C stops at once.

    Outside the main thread, where Python allows no handlers, it does nothing and never stops a run.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number
