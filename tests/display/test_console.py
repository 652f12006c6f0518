"""What a person sees: wording, plain lines, the panel at any width, and silence when nobody listens."""

import io
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from swell.display.console import LivePanel, PlainLines, Quiet, make_console, patient_console, say
from swell.display.panel import PanelView, RunHeader
from swell.display.sinks import Row, RunSoFar
from swell.display.words import decimal, duration, explain, percent, summary_report, to_ascii

HEADER = RunHeader(
    env_id="CartPole-v1",
    algorithm="PQN",
    network="mlp",
    num_parameters=17_922,
    scaler="adaptive 16..64 (log)",
    adapts=True,
    min_horizon=16,
    max_horizon=64,
    num_envs=32,
    run_directory="runs/cartpole",
    resume="exact",
)
ROW: Row = {
    "env_steps": 25_000,
    "horizon": 58,
    "next_horizon": 61,
    "batch_size": 1_856,
    "minibatch_size": 464,
    "minibatches": 4,
    "epochs": 2,
    "gradient_steps": 3_480,
    "reading": 0.0612,
    "signal": "behavioral_divergence",
    "learning_rate": 2.5e-4,
    "epsilon": 0.05,
    "episode_return": 195.34,
    "episode_length": 195.3,
    "episodes": 1_203,
    "loss": 0.0123,
    "gradient_norm": 0.42,
    "q_mean": 12.1,
    "steps_per_second": 1_000.0,
    "wall_seconds": 25.0,
    "seconds_act": 5.0,
    "seconds_env": 7.5,
    "seconds_update": 10.0,
    "seconds_measure": 0.5,
}


def view() -> PanelView:
    return PanelView(HEADER, RunSoFar(100_000))


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class BrokenTerminal(io.StringIO):
    """A terminal whose other end is gone."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        raise BrokenPipeError


def closed_stream() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


def rendered(header: RunHeader, rows: list[Row], width: int, evaluation: Row | None = None) -> str:
    run = RunSoFar(total_env_steps=100_000)
    for row in rows:
        run.add(row)
    run.last_evaluation = evaluation or {}
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(PanelView(header, run))
    return console.export_text()


@pytest.mark.parametrize(
    ("reading", "old_horizon", "new_horizon", "words"),
    [
        (0.06, 58, 61, "divergence 0.06 → horizon 61 of 64, up from 58"),
        (0.5, 61, 40, "divergence 0.50 → horizon 40 of 64, down from 61"),
        (0.06, 61, 61, "divergence 0.06 → horizon unchanged at 61 of 64"),
        (None, 16, 16, "no reading yet, horizon 16 of 64"),
        (math.nan, 16, 16, "divergence nan → horizon unchanged at 16 of 64"),
    ],
)
def test_explain_says_what_the_reading_did_to_the_horizon(
    reading: float | None, old_horizon: int, new_horizon: int, words: str
) -> None:
    assert explain(reading, old_horizon, new_horizon, 64, "behavioral_divergence") == words


def test_explain_names_a_signal_it_has_no_short_word_for() -> None:
    assert explain(0.9, 16, 20, 64, "action_gap").startswith("action gap 0.90 → horizon 20")


@pytest.mark.parametrize("scaler", ["fixed 58", "ramp 16..64"])
def test_a_scaler_that_does_not_adapt_says_that_the_reading_was_only_measured(scaler: str) -> None:
    text = rendered(replace(HEADER, scaler=scaler, adapts=False), [ROW], 80)
    assert f"divergence 0.06 (measured only), {scaler}: horizon 58" in text
    assert "58 of 64" not in text


def test_numbers_are_short_and_unknown_ones_are_a_dash() -> None:
    words = [decimal(value) for value in (195.34, 12_345.6, 0.05, 2.5e-4, 0.0, math.nan)]
    assert words == ["195.3", "12,346", "0.05", "2.5e-4", "0.00", "nan"]
    assert decimal(None) == duration(None) == duration(math.inf) == "–"
    assert duration(3_725.9) == "1:02:05"


def test_a_run_is_not_at_a_hundred_percent_before_it_is_done() -> None:
    assert percent(0.9999) == "99%"
    assert percent(1.0) == "100%"


@pytest.mark.parametrize("width", [80, 120])
def test_the_panel_tells_the_whole_story_at_common_widths(width: int) -> None:
    text = rendered(HEADER, [ROW], width, {"env_steps": 20_000, "episodes": 10, "mean_return": 480, "std_return": 12})
    for words in (
        "CartPole-v1 · PQN · mlp · 17,922 parameters",
        "25%",
        "0:01:15 left",
        "25,000 of 100,000 · 1,000 per second · 0:00:25 elapsed",
        "195.3",
        "1,203 finished",
        "480.0 ± 12.0 over 10 episodes at 20,000 steps",
        "58 of 64",
        "divergence 0.06 → horizon 61 of 64, up from 58",
        "1,856 steps from 32 envs × 58 · adaptive 16..64 (log)",
        "2 epochs × 4 minibatches of 464 · 3,480 gradient steps",
        "loss 0.01  gradient 0.42  q 12.1  rate 2.5e-4  epsilon 0.05",
        "act 20%  env 30%  update 40%  measure 2%  other 8%",
        "runs/cartpole · resume: exact",
    ):
        assert words in text


@pytest.mark.parametrize("width", [1, 12, 40, 80, 120])
@pytest.mark.parametrize("rows", [[], [{}], [{"env_steps": 100, "horizon": 16}], [dict.fromkeys(ROW, math.nan)], [ROW]])
def test_the_panel_keeps_its_shape_whatever_is_missing(width: int, rows: list[Row]) -> None:
    lines = rendered(HEADER, rows, width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert len(lines) == 13 or width < 12


def test_a_value_that_is_cut_shows_that_it_was_cut() -> None:
    text = rendered(HEADER, [ROW], 40)
    batch_line = next(line for line in text.splitlines() if "batch" in line)
    assert batch_line.rstrip("│ ").endswith("…")


def test_the_panel_draws_the_horizon_between_its_bounds() -> None:
    rows: list[Row] = [{"horizon": old, "next_horizon": new} for old, new in ((16, 40), (40, 64), (64, 64))]
    assert "▁▅█" in rendered(HEADER, rows, 80)


def test_a_stream_without_utf8_gets_ascii_only() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    console = patient_console(stream)
    run = RunSoFar(total_env_steps=100_000)
    run.add(ROW)
    console.print(PanelView(HEADER, run))
    say("16 → 61", console)
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert "divergence 0.06 -> horizon 61 of 64" in text
    assert "16 -> 61" in text
    assert "?" not in text


def test_ascii_sparklines_have_a_sign_for_every_height() -> None:
    assert len(set(to_ascii("▁▂▃▄▅▆▇█"))) == 8


def test_plain_lines_come_first_then_every_five_seconds_then_last() -> None:
    stream, clock = io.StringIO(), Clock()
    lines = PlainLines(view(), stream=stream, clock=clock)
    for second in range(8):
        clock.seconds = float(second)
        lines.write({**ROW, "env_steps": 1_000 * second})
    lines.close()
    lines.close()
    told = [line.split()[1] for line in stream.getvalue().splitlines() if "/100,000" in line]
    assert told == ["0/100,000", "5,000/100,000", "7,000/100,000"]


def test_a_plain_line_says_where_the_run_is_and_why_the_batch_changed() -> None:
    stream = io.StringIO()
    PlainLines(view(), stream=stream).write(ROW)
    title, place, line = stream.getvalue().splitlines()
    assert title == "CartPole-v1 · PQN · mlp · 17,922 parameters · adaptive 16..64 (log) · 32 envs"
    assert place == "runs/cartpole · resume: exact"
    assert line == (
        " 25%  25,000/100,000 steps  return 195.3  batch 1,856  1,000 steps/s  0:01:15 left  "
        "divergence 0.06 → horizon 61 of 64, up from 58"
    )


def test_plain_notices_and_evaluations_are_told_at_once() -> None:
    stream = io.StringIO()
    lines = PlainLines(view(), stream=stream)
    lines.message("checkpoint written: [step-100]")
    lines.evaluation({"env_steps": 100, "episodes": 10, "mean_return": 21.0, "std_return": 0.5})
    assert stream.getvalue().splitlines()[2:] == [
        "checkpoint written: [step-100]",
        "evaluation: 21.0 ± 0.50 over 10 episodes at 100 steps",
    ]


def test_the_live_panel_redraws_at_most_four_times_a_second_and_ends_up_to_date() -> None:
    stream, clock = io.StringIO(), Clock()
    panel = LivePanel(view(), Console(file=stream, force_terminal=True, width=80, height=24), clock)
    for tenth in range(20):
        clock.seconds = tenth / 10
        panel.write({**ROW, "env_steps": 1_000 * tenth})
    drawn_while_running = stream.getvalue().count("CartPole-v1")
    panel.close()
    assert 2 <= drawn_while_running <= 8
    assert "19,000 of 100,000" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_a_live_panel_that_never_heard_of_a_row_leaves_the_cursor_alone() -> None:
    stream = io.StringIO()
    LivePanel(view(), Console(file=stream, force_terminal=True, highlight=False, width=80, height=24))
    assert stream.getvalue() == "starting CartPole-v1 · PQN · mlp · 17,922 parameters\n"


def test_a_notice_scrolls_by_above_the_live_panel() -> None:
    stream = io.StringIO()
    panel = LivePanel(view(), Console(file=stream, force_terminal=True, width=80, height=24))
    panel.write(ROW)
    panel.message("checkpoint written")
    panel.close()
    after_notice = stream.getvalue().split("checkpoint written")[1]
    assert "CartPole-v1" in after_notice


def test_a_status_stands_below_the_live_panel_until_it_ends() -> None:
    stream = io.StringIO()
    panel = LivePanel(view(), Console(file=stream, force_terminal=True, width=80, height=24))
    panel.write(ROW)
    panel.status("starting envs: 16 of 40 (2 s left)")
    assert stream.getvalue().rstrip().endswith("starting envs: 16 of 40 (2 s left)")
    panel.status("")
    panel.close()
    assert "starting envs" not in stream.getvalue().rpartition("CartPole-v1")[2]


@pytest.mark.parametrize("stream", [BrokenTerminal(), closed_stream()])
def test_a_display_without_a_reader_falls_silent_and_does_not_stop_the_run(stream: io.StringIO) -> None:
    console = patient_console(stream)
    panel = LivePanel(view(), console)
    for sink in (panel, PlainLines(view(), every_seconds=0, stream=stream)):
        sink.write(ROW)
        sink.evaluation({"env_steps": 100})
        sink.message("checkpoint written")
        sink.status("starting envs")
        sink.close()
    assert console.quiet


def test_a_pipe_that_closes_leaves_no_trace_in_the_exit_code_or_on_stderr() -> None:
    script = """
from swell.display.console import patient_console, say
console = patient_console()
input()
for _ in range(3):
    say("line", console)
"""
    pipe = subprocess.PIPE
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # without a buffer there is no last flush to fail
    process = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, env=buffered)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0
    process.stderr.close()


@pytest.mark.parametrize(
    ("quiet", "is_terminal", "term", "kind"),
    [
        (True, True, "xterm", Quiet),
        (False, True, "xterm", LivePanel),
        (False, True, "dumb", PlainLines),
        (False, False, "xterm", PlainLines),
    ],
)
def test_the_display_fits_where_stdout_goes(
    quiet: bool, is_terminal: bool, term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdout = io.StringIO()
    monkeypatch.setattr(stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("TERM", term)
    sink = make_console(quiet, view())
    sink.close()
    assert type(sink) is kind
    assert bool(stdout.getvalue()) is not quiet


def test_the_report_tells_how_the_run_ended_and_what_to_try_next() -> None:
    summary: Row = {
        "status": "done",
        "directory": "runs/cartpole",
        "env_steps": 500_000,
        "gradient_steps": 9_840,
        "final_return": 487.2,
        "evaluation_return": 499.5,
        "evaluation_std": 1.5,
        "evaluation_episodes": 10,
        "steps_per_second": 3_012.0,
        "wall_seconds": 166.0,
        "peak_memory_mb": 612.3,
    }
    assert summary_report(summary, [16, 40, 64, 60], ["swell evaluate runs/cartpole"]).splitlines() == [
        "done",
        "  run        runs/cartpole",
        "  return     487.2 (mean of the last 100 training episodes)",
        "  evaluation 499.5 ± 1.5 (10 greedy episodes)",
        "  work       500,000 env steps · 9,840 gradient steps",
        "  time       0:02:46 · 3,012 steps/s",
        "  memory     612 MB at the peak",
        "  horizon    16 → 60  ▁▅█▇  least 16, most 64",
        "next",
        "  swell evaluate runs/cartpole",
    ]


def test_the_report_leaves_out_what_is_not_known() -> None:
    report = summary_report({"status": "interrupted", "final_return": None, "env_steps": 10}, [], [])
    assert report.splitlines() == [
        "interrupted",
        "  work       10 env steps · – gradient steps",
        "  time       – · – steps/s",
    ]
