"""What a person sees while a run trains: a live panel, plain lines or nothing; and the report at the end."""

import math
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from swell.metrics import SPARKS, Row, RunSoFar, Sink, finite, number, sparkline

Fragments = list[tuple[str, str]]
"""Pieces of a line, each with its rich style."""


@dataclass(frozen=True)
class RunHeader:
    """What stays the same during a run and tells it from other runs."""

    env_id: str
    algorithm: str
    network: str
    num_parameters: int
    scaler: str
    """In words, such as "adaptive 16..64 (log)"."""
    adapts: bool
    """Whether readings move the horizon; false for the fixed and the ramp scaler."""
    min_horizon: int
    max_horizon: int
    num_envs: int
    run_directory: str
    resume: str = ""
    """How true to the original a resumed run will be, such as "exact"; empty says nothing."""

    @property
    def title(self) -> str:
        return f"{self.env_id} · {self.algorithm} · {self.network} · {self.num_parameters:,} parameters"

    @property
    def place(self) -> str:
        return f"{self.run_directory} · resume: {self.resume}" if self.resume else self.run_directory


def make_console(quiet: bool, total_env_steps: int, header: RunHeader) -> Sink:
    """The display that fits where stdout goes: nothing, a live panel on a terminal, or plain lines."""
    if quiet or sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # None under pythonw
        return Quiet()
    if sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        return LivePanel(header, total_env_steps)
    return PlainLines(header, total_env_steps)


class Quiet:
    """Says nothing; errors reach the user through the exit line of the command."""

    def write(self, row: Row) -> None: ...

    def evaluation(self, row: Row) -> None: ...

    def message(self, text: str) -> None: ...

    def close(self) -> None: ...


class PlainLines:
    """A line now and then, for log files and pipes: the first row, one every `every_seconds`, and the last."""

    def __init__(
        self,
        header: RunHeader,
        total_env_steps: int,
        every_seconds: float = 5.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._header, self._run = header, RunSoFar(total_env_steps)
        self._every_seconds, self._clock = every_seconds, clock
        self._console = patient_console(stream)
        self._told_at = -math.inf
        self._has_news = False
        self.message(f"{header.title} · {header.scaler} · {header.num_envs} envs")
        self.message(header.place)

    def write(self, row: Row) -> None:
        self._run.add(row)
        self._has_news = True
        if self._clock() - self._told_at >= self._every_seconds:
            self._tell()

    def evaluation(self, row: Row) -> None:
        self.message(f"evaluation: {describe_evaluation(row)}")

    def message(self, text: str) -> None:
        say(text, self._console)

    def close(self) -> None:
        if self._has_news:
            self._tell()

    def _tell(self) -> None:
        self._told_at, self._has_news = self._clock(), False
        self.message(plain_line(self._header, self._run))


class LivePanel:
    """A panel that stays in place and is redrawn at most four times a second; notices scroll by above it.

    It draws only when the run reports something, in the run's own thread: nothing to race with, nothing to kill.
    The first report opens it, so a run that fails while being set up leaves the terminal as it was.
    """

    def __init__(
        self,
        header: RunHeader,
        total_env_steps: int,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._clock = RunSoFar(total_env_steps), clock
        self._console = console or patient_console()
        self._live = Live(PanelView(header, self._run), console=self._console, auto_refresh=False)
        self._drawn_at = -math.inf
        self.message(f"starting {header.title}")

    def write(self, row: Row) -> None:
        self._run.add(row)
        if self._clock() - self._drawn_at >= 0.25:
            self._draw()

    def evaluation(self, row: Row) -> None:
        self._run.last_evaluation = row
        self._draw()

    def message(self, text: str) -> None:
        say(text, self._console)

    def close(self) -> None:
        """Leaves the last picture on the screen and gives the cursor back."""
        with _silenced_on_failure(self._console):
            self._live.stop()

    def _draw(self) -> None:
        self._drawn_at = self._clock()
        with _silenced_on_failure(self._console):
            self._live.start()  # does nothing from the second time on
            self._live.refresh()


@dataclass(frozen=True)
class PanelView:
    """The panel as something rich can draw at any width."""

    header: RunHeader
    run: RunSoFar

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.max_width - 4, 1)  # the border and its padding
        ascii_only = options.ascii_only
        body = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
        body.add_column(style="dim", width=_LABEL_WIDTH, no_wrap=True, overflow="crop")
        body.add_column(no_wrap=True, overflow="crop")
        value_room = max(room - _LABEL_WIDTH - 1, 0)
        for label, fragments in panel_lines(self.header, self.run, value_room):
            body.add_row(label, _fitted(fragments, value_room, ascii_only))
        yield Panel(
            body,
            title=_fitted([(self.header.title, "bold")], room - 2, ascii_only),
            subtitle=_fitted([(self.header.place, "dim")], room - 2, ascii_only),
            title_align="left",
            subtitle_align="left",
            border_style="blue",
        )


_LABEL_WIDTH = 9  # "evaluated"


def panel_lines(header: RunHeader, run: RunSoFar, room: int) -> list[tuple[str, Fragments]]:
    """The panel's lines, label first, for values `room` characters wide."""
    row = run.latest
    picture_room = room - 12
    returns = sparkline(run.returns.values(), picture_room)
    horizons = sparkline(run.horizons.values(), picture_room, header.min_horizon, header.max_horizon)
    horizon = count(finite(row, "planned_horizon")) + (f" of {header.max_horizon}" if header.adapts else "")
    return [
        (percent(run.fraction_done()), _progress_bar(run, room)),
        ("steps", [(_steps(run), "")]),
        ("return", [(f"{decimal(number(row, 'episode_return')):<12}", "bold green"), (returns, "green")]),
        ("episodes", [(_episodes(row), "")]),
        ("evaluated", [(describe_evaluation(run.last_evaluation), "")]),
        ("horizon", [(f"{horizon:<12}", "bold cyan"), (horizons, "cyan")]),
        ("why", [(why(header, run), "yellow")]),
        ("batch", [(_batch(header, row), "")]),
        ("update", [(_update(row), "")]),
        ("learning", [(_learning(row), "")]),
        ("time", _time(run.phase_shares(), room)),
    ]


def plain_line(header: RunHeader, run: RunSoFar) -> str:
    """The state of the run in one line, without the panel's pictures."""
    row = run.latest
    parts = (
        f"{percent(run.fraction_done()):>4}",
        f"{count(finite(row, 'env_steps'))}/{run.total_env_steps:,} steps",
        f"return {decimal(number(row, 'episode_return'))}",
        f"batch {count(finite(row, 'batch_size'))}",
        f"{count(run.steps_per_second())} steps/s",
        f"{duration(run.seconds_left())} left",
        why(header, run),
    )
    return "  ".join(parts)


def why(header: RunHeader, run: RunSoFar) -> str:
    """Why the batch has the size it has, from the last reading."""
    row = run.last_reading or run.latest
    old_horizon = finite(row, "planned_horizon")
    new_horizon = finite(row, "next_horizon") or old_horizon
    reading, signal = number(row, "reading"), str(row.get("signal") or "reading")
    if header.adapts:
        return explain(reading, old_horizon, new_horizon, header.max_horizon, signal)
    return explain_unadapted(reading, finite(run.latest, "planned_horizon"), header.scaler, signal)


def explain(
    reading: float | None, old_horizon: float | None, new_horizon: float | None, max_horizon: int, signal: str
) -> str:
    """What a reading did to the horizon, such as "divergence 0.06 → horizon 61 of 64, up from 58"."""
    horizon = f"{count(new_horizon)} of {max_horizon}"
    if reading is None:
        return f"no reading yet, horizon {horizon}"
    cause = f"{_SIGNAL_WORDS.get(signal, signal.replace('_', ' '))} {decimal(reading)}"
    if old_horizon is None or new_horizon is None or old_horizon == new_horizon:
        return f"{cause} → horizon unchanged at {horizon}"
    direction = "up" if new_horizon > old_horizon else "down"
    return f"{cause} → horizon {horizon}, {direction} from {count(old_horizon)}"


def explain_unadapted(reading: float | None, horizon: float | None, scaler: str, signal: str) -> str:
    """The same for a scaler that follows its own plan, such as "divergence 0.06 (measured only), fixed 64"."""
    if reading is None:
        return f"{scaler}: horizon {count(horizon)}, nothing measured"
    cause = f"{_SIGNAL_WORDS.get(signal, signal.replace('_', ' '))} {decimal(reading)}"
    return f"{cause} (measured only), {scaler}: horizon {count(horizon)}"


_SIGNAL_WORDS = {
    "behavioral_divergence": "divergence",
    "kl_divergence": "KL",
    "gradient_noise_scale": "noise scale",
}


def describe_evaluation(row: Row) -> str:
    """An evaluation in words, such as "480.2 ± 12.1 over 10 episodes at 200,000 steps"."""
    if number(row, "mean_return") is None:
        return "–"
    score = f"{decimal(number(row, 'mean_return'))} ± {decimal(number(row, 'std_return'))}"
    return f"{score} over {count(finite(row, 'episodes'))} episodes at {count(finite(row, 'env_steps'))} steps"


def summary_report(summary: Mapping[str, object], horizons: Sequence[int], next_commands: Sequence[str]) -> str:
    """What a person wants to know when a run has ended; `summary` is summary.json. Unknown lines are left out."""
    lines = [
        ("run", str(summary.get("directory") or "")),
        ("return", _final_return(summary)),
        ("evaluation", _final_evaluation(summary)),
        ("work", _work(summary)),
        ("time", _time_taken(summary)),
        ("memory", _peak_memory(summary)),
        ("horizon", _horizon_story(horizons)),
    ]
    told = [f"  {label:<11}{text}" for label, text in lines if text]
    commands = ["next", *(f"  {command}" for command in next_commands)] if next_commands else []
    return "\n".join([str(summary.get("status", "ended")), *told, *commands])


def _final_return(summary: Row) -> str:
    value = number(summary, "final_return")
    return "" if value is None else f"{decimal(value)} (mean of the last 100 training episodes)"


def _final_evaluation(summary: Row) -> str:
    mean, deviation = number(summary, "evaluation_return"), number(summary, "evaluation_std")
    if mean is None:
        return ""
    spread = "" if deviation is None else f" ± {decimal(deviation)}"
    episodes = finite(summary, "evaluation_episodes")
    return f"{decimal(mean)}{spread}" + ("" if episodes is None else f" ({count(episodes)} greedy episodes)")


def _work(summary: Row) -> str:
    env_steps, gradient_steps = finite(summary, "env_steps"), finite(summary, "gradient_steps")
    return f"{count(env_steps)} env steps · {count(gradient_steps)} gradient steps"


def _time_taken(summary: Row) -> str:
    return f"{duration(finite(summary, 'wall_seconds'))} · {count(finite(summary, 'steps_per_second'))} steps/s"


def _peak_memory(summary: Row) -> str:
    peak = finite(summary, "peak_memory_mb")
    return "" if peak is None else f"{count(peak)} MB at the peak"


def _horizon_story(horizons: Sequence[int]) -> str:
    if not horizons:
        return ""
    return f"{horizons[0]} → {horizons[-1]}  {sparkline(horizons, 24)}  least {min(horizons)}, most {max(horizons)}"


def _steps(run: RunSoFar) -> str:
    done = f"{count(finite(run.latest, 'env_steps'))} of {run.total_env_steps:,}"
    elapsed = duration(finite(run.latest, "wall_seconds"))
    return f"{done} · {count(run.steps_per_second())} per second · {elapsed} elapsed"


def _episodes(row: Row) -> str:
    length = f"{decimal(number(row, 'episode_length'))} steps on average"
    episodes = finite(row, "episodes")
    return f"{count(episodes)} finished · the last 100 took {length}" if episodes else "none finished yet"


def _batch(header: RunHeader, row: Row) -> str:
    # Not "=": steps that only reset an env are no experience, so the batch may be a little smaller than the product.
    source = f"{header.num_envs} envs × {count(finite(row, 'horizon'))}"
    return f"{count(finite(row, 'batch_size'))} steps from {source} · {header.scaler}"


def _update(row: Row) -> str:
    minibatches = f"{count(finite(row, 'minibatches'))} minibatches of {count(finite(row, 'minibatch_size'))}"
    epochs, gradient_steps = count(finite(row, "epochs")), count(finite(row, "gradient_steps"))
    return f"{epochs} epochs × {minibatches} · {gradient_steps} gradient steps"


def _learning(row: Row) -> str:
    known = [(word, number(row, name)) for name, word in _LEARNING_WORDS.items()]
    return "  ".join(f"{word} {decimal(value)}" for word, value in known if value is not None) or "–"


_LEARNING_WORDS = {
    "loss": "loss",
    "gradient_norm": "gradient",
    "q_mean": "q",
    "learning_rate": "rate",
    "epsilon": "epsilon",
    "entropy": "entropy",
}


def _progress_bar(run: RunSoFar, room: int) -> Fragments:
    left = f"  {duration(run.seconds_left())} left"
    width = max(room - len(left), 0)
    done = round(run.fraction_done() * width)
    return [("━" * done, "green"), ("─" * (width - done), "dim"), (left, "")]


def _time(shares: Mapping[str, float], room: int) -> Fragments:
    """Percentages by phase; in front of them, where there is room, a bar in the same order and colours."""
    if not shares:
        return [("–", "")]
    legend = [(f"{phase} {share:.0%}  ", _PHASE_LOOKS[phase][1]) for phase, share in shares.items()]
    legend[-1] = (legend[-1][0].rstrip(), legend[-1][1])
    bar_width = room - 2 - sum(len(text) for text, _ in legend)
    return legend if bar_width < 8 else [*_time_bar(shares, bar_width), ("  ", ""), *legend]


def _time_bar(shares: Mapping[str, float], width: int) -> Fragments:
    ends = [round(passed * width) for passed in accumulate(shares.values(), initial=0.0)]
    looks = [_PHASE_LOOKS[phase] for phase in shares]
    return [(glyph * (end - start), style) for (glyph, style), (start, end) in zip(looks, pairwise(ends), strict=True)]


_PHASE_LOOKS = {
    "act": ("█", "magenta"),
    "env": ("▓", "blue"),
    "update": ("▒", "green"),
    "measure": ("░", "yellow"),
    "other": ("·", "dim"),
}


def count(value: float | None) -> str:
    """A whole number with thousands separated; a dash for what is not known."""
    return "–" if value is None else f"{value:,.0f}"


def decimal(value: float | None) -> str:
    """Two or three digits of a number of any size; a dash for what is not known."""
    if value is None:
        return "–"
    size = abs(value)
    if 0 < size < 0.01:
        return f"{value:.1e}".replace("e-0", "e-")
    if size < 1:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 1000 else f"{value:,.0f}"


def percent(fraction: float) -> str:
    """Whole percents, rounded down: a run is at 100% when it is done, not before."""
    return f"{int(fraction * 100)}%"


def duration(seconds: float | None) -> str:
    """Hours, minutes and seconds; a dash for what is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def to_ascii(text: str) -> str:
    """The same text for a stream that cannot write UTF-8."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


_ASCII = str.maketrans(
    {"→": "->", "·": "|", "±": "+/-", "–": "-", "×": "x", "━": "#", "─": "-"}
    | {"█": "#", "▓": "=", "▒": "-", "░": "."}
    | dict(zip(SPARKS, "_.-:=+*#", strict=True))
)


def _fitted(fragments: Fragments, width: int, ascii_only: bool) -> Text:
    """One line of at most `width` characters; a mark shows where it was cut, so that no cut number passes for whole."""
    pieces = [(to_ascii(text) if ascii_only else text, style) for text, style in fragments]
    line = Text.assemble(*pieces, overflow="crop", no_wrap=True)
    if line.cell_len > width:
        line.truncate(max(width - 1, 0))
        line.append("~" if ascii_only else "…")
    return line


class _PatientConsole(Console):
    """A console that falls silent when its reader is gone; rich's own would end the process."""

    def on_broken_pipe(self) -> None:
        _discard_output(self)


def patient_console(stream: TextIO | None = None) -> Console:
    """A console for `stream` (default: stdout) that never raises because of whoever reads it."""
    return _PatientConsole(file=stream, soft_wrap=True, markup=False, highlight=False, emoji=False)


def say(text: str, console: Console) -> None:
    """Prints text as it is; on a stream without UTF-8, in ASCII."""
    with _silenced_on_failure(console):
        console.print(to_ascii(text) if console.options.ascii_only else text)


@contextmanager
def _silenced_on_failure(console: Console) -> Generator[None, None, None]:
    """Training outlives its display: a full disk or a hung-up terminal ends the printing, not the run."""
    try:
        yield
    except OSError:
        _discard_output(console)
    except ValueError:  # the stream was closed
        console.quiet = True


def _discard_output(console: Console) -> None:
    console.quiet = True
    with suppress(OSError, ValueError):  # else the interpreter's last flush fails too and spoils the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), console.file.fileno())
