"""Sides in fresh processes that stay alive and take turns: start-up is left out, and noise hits all of them."""

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

from .sides import Block, Side


class SideFailedError(RuntimeError):
    """A side could not start or go on; the message says why."""


class Contestant(Protocol):
    """Whoever takes turns: a side in its process, or a command."""

    label: str
    pace: float
    """The length of its blocks as a share of the usual; what is steady needs less time."""

    def block(self, seconds: float) -> Block: ...

    def close(self) -> None: ...


class RemoteSide:
    """A side in a process of its own, ready to take its turns."""

    def __init__(self, label: str, make: Callable[[], Side], pace: float = 1.0) -> None:
        self.label = label
        self.pace = pace
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make), daemon=True)
        self._process.start()
        theirs.close()
        self.threads: int = self._answer()

    def block(self, seconds: float) -> Block:
        self._connection.send(seconds)
        return self._answer()

    def close(self) -> None:
        self._connection.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.terminate()

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise SideFailedError(f"{self.label} ended with exit code {self._process.exitcode}") from None
        if isinstance(answer, str):
            raise SideFailedError(f"{self.label} failed: {answer}")
        return answer


def _serve(connection: Connection, make: Callable[[], Side]) -> None:
    """In the process of a side: warms up, then does a block whenever a number of seconds arrives."""
    try:
        side = make()
        side.warm_up()
        connection.send(side.threads)
        while True:
            connection.send(side.block(connection.recv()))
    except (EOFError, BrokenPipeError):
        return  # nobody is waiting any more
    except Exception as error:
        traceback.print_exc()
        connection.send(f"{type(error).__name__}: {error}")


def take_turns(
    contestants: Sequence[Contestant], blocks: int, seconds: float, say: Callable[[str], None]
) -> dict[str, list[Block]]:
    """Blocks of each contestant by its label. Every other round goes backwards, so that nobody is always first."""
    found: dict[str, list[Block]] = {contestant.label: [] for contestant in contestants}
    for turn in range(blocks):
        for contestant in contestants if turn % 2 == 0 else reversed(contestants):
            found[contestant.label].append(contestant.block(contestant.pace * seconds))
        rates = ", ".join(f"{label} {done[-1].rate:,.0f}/s" for label, done in found.items())
        say(f"  block {turn + 1}/{blocks}: {rates}")
    return found
