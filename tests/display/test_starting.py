"""What a person sees while envs start: a line that counts and disappears on a terminal, one line in a log."""

import io

import pytest
from rich.console import Console

from swell.display.starting import Countdown, counting_envs, show_starting
from swell.envs.starting import tell


class Clock:
    """A clock that moves on by a second whenever it is read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, highlight=False, width=80, height=24)


def start_envs() -> None:
    for started in (0, 16, 32, 40):
        tell(started, 40)


@pytest.fixture
def on_a_terminal(monkeypatch):
    monkeypatch.setattr("swell.display.starting.is_live_terminal", lambda: True)


def test_the_time_left_follows_from_the_pace_so_far():
    clock = Clock()
    countdown = Countdown(clock)
    assert countdown.words(0, 128) == "starting envs: 0 of 128"
    clock.seconds += 3.0
    assert countdown.words(32, 128) == "starting envs: 32 of 128 (12 s left)"


def test_a_terminal_counts_the_envs_and_is_clean_again_afterwards(on_a_terminal):
    console = terminal()
    with counting_envs(console, Clock()):
        start_envs()
        shown = console.file.getvalue()
    assert "starting envs: 16 of 40 (2 s left)" in shown
    assert "starting envs: 32 of 40 (0 s left)" in shown
    assert shown.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # the cursor is back, the line erased
    assert console.file.getvalue() == shown


def test_a_start_that_fails_gives_the_terminal_back(on_a_terminal):
    console = terminal()

    def fail() -> None:
        with counting_envs(console):
            tell(0, 40)
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert "\x1b[?25h" in console.file.getvalue()


def test_a_log_has_one_line_for_the_start():
    console = Console(file=io.StringIO())
    with show_starting("starting 40 envs of Pong", quiet=False, console=console):
        start_envs()
    assert console.file.getvalue() == "starting 40 envs of Pong\n"


def test_nothing_is_shown_where_quiet_was_asked_for(on_a_terminal, capsys):
    with show_starting("starting 40 envs of Pong", quiet=True):
        start_envs()
    assert capsys.readouterr().out == ""
