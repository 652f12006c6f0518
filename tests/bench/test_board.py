"""What a person sees of a benchmark, on a terminal of any size and off it."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from small_bench import ADAPTIVE, small_plan

from swell.bench.board import BoardView, LiveBoard, PlainBoard, QuietBoard, event_line, headline, make_board
from swell.bench.status import RunState
from swell.display.console import patient_console


@pytest.fixture
def states():
    runs = small_plan("fixed:8", ADAPTIVE, seeds=10, total_env_steps=6000)
    known = {
        0: RunState(runs[0], "done", 6000, 6.0, 190.0, 8, score=195.5),
        1: RunState(runs[1], "running", 3000, 3.0, 44.25, 12),
        2: RunState(runs[2], "failed", 100, 0.5, reason="the env raised"),
        3: RunState(runs[3], "diverged", 2000, 2.0),
        4: RunState(runs[4], "running"),
    }
    return [known.get(number, RunState(run, "missing")) for number, run in enumerate(runs)]


def drawn(states, width=120, height=20, **options):
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, force_terminal=True, color_system=None, **options)
    console.print(BoardView(states))
    return stream.getvalue().splitlines()


def test_the_headline_counts(states):
    assert headline(states).startswith("2 of 20 finished, 2 running, 1 failed, about ")


def test_the_headline_of_the_end_has_no_time_left(states):
    assert headline(states[:1]) == "1 of 1 finished"


def test_the_running_come_first_then_the_failed_and_the_rest_is_counted(states):
    lines = drawn(states, height=9)
    assert lines[0].startswith("2 of 20 finished") and lines[1].split()[:4] == ["env", "variant", "seed", "state"]
    assert [line.split()[3] for line in lines[2:-1]] == ["running", "running", "failed", "diverged", "queued"]
    assert lines[-1].strip() == "and 14 queued, 1 finished"
    assert len(lines) <= 9 - 1, "the cursor needs a line, or the terminal scrolls with every table"


def test_a_line_tells_how_far_a_run_is(states):
    [line] = [line for line in drawn(states) if "50%" in line]
    assert line.split() == [
        "CartPole-v1",
        "adaptive:4-16",
        "1",
        "running",
        "━━━━━━──────",
        "50%",
        "44.2",
        "12",
        "1,000",
        "3",
        "s",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 104, 200])
@pytest.mark.parametrize("height", [1, 5, 50])
def test_it_fits_any_terminal(states, width, height):
    lines = drawn(states, width, height)
    assert all(len(line) <= width for line in lines) and len(lines) <= max(height, 4)


def test_it_is_written_in_ascii_where_nothing_else_can_be(states):
    class Ascii(io.StringIO):
        encoding = "ascii"

    stream = Ascii()
    Console(file=stream, width=120, height=20, force_terminal=True, color_system=None).print(BoardView(states))
    assert stream.getvalue().isascii() and "######------ 50%" in stream.getvalue()


def test_hostile_names_are_only_text(states):
    run = replace(states[1].run, variant=replace(states[1].run.variant, label="[red]x[/red][link=a]"))
    assert any("[red]x[/red][link=a]" in line for line in drawn([replace(states[1], run=run)], width=150))


def test_the_live_table_tells_each_failure_once_and_leaves_its_last_state(states):
    stream, now = io.StringIO(), [0.0]
    console = Console(file=stream, width=120, height=20, force_terminal=True, color_system=None)
    board = LiveBoard(console, clock=lambda: now[0])
    for _ in range(10):
        board.show(states)
    assert stream.getvalue().count("of 20 finished") == 1, "at most four drawings a second"
    now[0] = 1.0
    board.show([replace(state, status="done") if state.status == "running" else state for state in states])
    board.close()
    board.close()
    assert stream.getvalue().count("failed CartPole-v1/fixed-8/seed-2: the env raised") == 1
    assert "4 of 20 finished" in stream.getvalue()


def test_a_terminal_that_is_gone_does_not_stop_the_benchmark(states):
    class Gone(io.StringIO):
        def isatty(self):
            return True

        def write(self, text, /):
            raise BrokenPipeError

    board = LiveBoard(patient_console(Gone()))
    board.show(states)
    board.close()


def test_plain_lines_speak_only_of_what_is_new(states):
    stream = io.StringIO()
    board = PlainBoard(stream)
    board.show(states)
    board.show(states)
    lines = stream.getvalue().splitlines()
    assert lines[1:] == [
        "continues CartPole-v1/adaptive-4-16/seed-1 at 3,000 steps",
        "starts CartPole-v1/fixed-8/seed-3",
    ]
    board.show([replace(states[0], status="diverged")])
    assert stream.getvalue().splitlines()[-1].startswith("diverged CartPole-v1/fixed-8/seed-1 at 6,000 steps · 1 of 1")


def test_every_status_has_its_words(states):
    assert event_line("running", states[0]) == "finished CartPole-v1/fixed-8/seed-1, score 195.5"
    assert event_line("missing", replace(states[0], status="in use")) == (
        "in use by another process: CartPole-v1/fixed-8/seed-1"
    )
    assert event_line("running", replace(states[0], status="interrupted")) == ""


def test_off_a_terminal_there_are_plain_lines_and_nothing_when_asked_for_quiet(capsys):
    assert isinstance(make_board(quiet=False), PlainBoard)
    assert isinstance(make_board(quiet=True), QuietBoard)
