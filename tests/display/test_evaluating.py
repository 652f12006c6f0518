"""What a person sees of an evaluation: how many episodes have ended, on a terminal, in a log and in no run at all."""

import io

import pytest
from rich.console import Console

from swell.display.console import LivePanel, PlainLines, Quiet
from swell.display.evaluating import StatusLine, show_evaluation
from swell.envs.starting import tell


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class View:
    """A run of which nothing has been heard."""

    title = "Pong"
    opening = ()

    def __rich_console__(self, console, options):
        yield "a panel"


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, highlight=False, width=80, height=24)


def play(clock, show_played, seconds=20):
    """An evaluation in which an episode ends every second."""
    for second in range(1, seconds + 1):
        clock.seconds += 1.0
        show_played(second, 100, 10 * second)


def start_envs() -> None:
    for started in (0, 16, 32, 40):
        tell(started, 40)


def test_a_log_says_now_and_then_how_many_episodes_have_ended():
    clock, stream = Clock(), io.StringIO()
    with show_evaluation(PlainLines(View(), stream=stream, clock=clock), clock) as show_played:
        play(clock, show_played)
    said = stream.getvalue().splitlines()
    assert said == [f"evaluating {ended} of 100 · step {10 * ended}" for ended in (1, 6, 11, 16)]


def test_an_evaluation_of_less_than_a_second_says_nothing():
    clock, stream = Clock(), io.StringIO()
    with show_evaluation(PlainLines(View(), stream=stream, clock=clock), clock) as show_played:
        for step in range(99):
            clock.seconds += 0.01
            show_played(0, 100, step)
    assert stream.getvalue() == ""


def test_the_panel_shows_how_many_episodes_have_ended():
    clock, console = Clock(), terminal()
    panel = LivePanel(View(), console, clock)
    with show_evaluation(panel, clock) as show_played:
        play(clock, show_played, 3)
        assert "evaluating 3 of 100 · step 30" in console.file.getvalue()
    panel.close()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_evaluation_without_a_run_has_a_line_of_its_own(monkeypatch, is_terminal):
    monkeypatch.setattr("swell.display.evaluating.is_live_terminal", lambda: is_terminal)
    clock, console = Clock(), terminal()
    with show_evaluation(StatusLine(console, clock=clock), clock) as show_played:
        play(clock, show_played, 2)
        shown = console.file.getvalue()
        assert "evaluating 1 of 100 · step 10" in shown
        assert ("evaluating 2 of 100" in shown) == is_terminal  # a log waits for some seconds
    assert ("\x1b[?25h" in console.file.getvalue()) == is_terminal, "the cursor is back"


def test_a_log_has_one_line_for_each_evaluation_that_takes_long_to_start():
    stream = io.StringIO()
    lines = PlainLines(View(), stream=stream, clock=Clock())
    for _ in range(2):
        with show_evaluation(lines):
            start_envs()
    with show_evaluation(lines):
        pass
    assert stream.getvalue() == 2 * "starting 40 envs for the evaluation\n"


def test_a_quiet_run_shows_no_evaluation(capsys):
    clock = Clock()
    with show_evaluation(Quiet(), clock) as show_played:
        start_envs()
        play(clock, show_played)
    assert capsys.readouterr().out == ""
