"""The panel of a run: the lines of the live panel, fitted to any width, and the one line of a log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from swell.display.sinks import Progress, Row, RunSoFar, finite, number, sparkline
from swell.display.words import (
    count,
    decimal,
    describe_evaluation,
    duration,
    explain,
    explain_unadapted,
    percent,
    to_ascii,
)

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


@dataclass(frozen=True)
class PanelView:
    """A run with envs as a display shows it."""

    header: RunHeader
    run: RunSoFar

    @property
    def title(self) -> str:
        return self.header.title

    @property
    def opening(self) -> list[str]:
        """What a log begins with."""
        return [f"{self.header.title} · {self.header.scaler} · {self.header.num_envs} envs", self.header.place]

    def add(self, row: Row) -> None:
        self.run.add(row)

    def add_evaluation(self, row: Row) -> str:
        """Takes in an evaluation and says it in words."""
        self.run.last_evaluation = row
        return describe_evaluation(row)

    def line(self) -> str:
        return plain_line(self.header, self.run)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield drawn_panel(self.title, self.header.place, lambda room: panel_lines(self.header, self.run, room), options)


def drawn_panel(
    title: str, place: str, lines: Callable[[int], list[tuple[str, Fragments]]], options: ConsoleOptions
) -> Panel:
    """Labelled lines in a frame, at any width; `lines` is told how wide its values may be."""
    room = max(options.max_width - 4, 1)  # the border and its padding
    ascii_only = options.ascii_only
    body = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    body.add_column(style="dim", width=_LABEL_WIDTH, no_wrap=True, overflow="crop")
    body.add_column(no_wrap=True, overflow="crop")
    value_room = max(room - _LABEL_WIDTH - 1, 0)
    for label, fragments in lines(value_room):
        body.add_row(label, _fitted(fragments, value_room, ascii_only))
    return Panel(
        body,
        title=_fitted([(title, "bold")], room - 2, ascii_only),
        subtitle=_fitted([(place, "dim")], room - 2, ascii_only),
        title_align="left",
        subtitle_align="left",
        border_style="blue",
    )


_LABEL_WIDTH = 9  # "evaluated"


def panel_lines(header: RunHeader, run: RunSoFar, room: int) -> list[tuple[str, Fragments]]:
    """The panel's lines, label first, for values `room` characters wide."""
    row = run.latest
    sparkline_room = room - 12
    returns = sparkline(run.returns.values(), sparkline_room)
    horizons = sparkline(run.horizons.values(), sparkline_room, header.min_horizon, header.max_horizon)
    horizon = count(finite(row, "planned_horizon")) + (f" of {header.max_horizon}" if header.adapts else "")
    return [
        (percent(run.fraction_done()), progress_bar(run, room)),
        ("steps", [(_steps(run), "")]),
        ("return", [(f"{decimal(number(row, 'episode_return')):<12}", "bold green"), (returns, "green")]),
        ("episodes", [(_episodes(row), "")]),
        ("evaluated", [(describe_evaluation(run.last_evaluation), "")]),
        ("horizon", [(f"{horizon:<12}", "bold cyan"), (horizons, "cyan")]),
        ("why", [(why(header, run), "yellow")]),
        ("batch", [(_batch(header, row), "")]),
        ("update", [(_update(row), "")]),
        ("learning", [(_learning(row), "")]),
        ("time", time_shares(run.phase_shares(), room)),
    ]


def plain_line(header: RunHeader, run: RunSoFar) -> str:
    """The state of the run in one line, without the panel's sparklines."""
    row = run.latest
    parts = (
        f"{percent(run.fraction_done()):>4}",
        f"{count(finite(row, 'env_steps'))}/{run.total:,} steps",
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


def _steps(run: RunSoFar) -> str:
    done = f"{count(finite(run.latest, 'env_steps'))} of {run.total:,}"
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
    "value_mean": "value",
    "learning_rate": "rate",
    "epsilon": "epsilon",
    "entropy": "entropy",
    "approx_kl": "kl",
    "clip_fraction": "clipped",
    "effective_sample_size": "ess",
}


def progress_bar(run: Progress, room: int) -> Fragments:
    """What is done, and how long the rest takes."""
    left = f"  {duration(run.seconds_left())} left"
    width = max(room - len(left), 0)
    done = round(run.fraction_done() * width)
    return [("━" * done, "green"), ("─" * (width - done), "dim"), (left, "")]


def time_shares(shares: Mapping[str, float], room: int) -> Fragments:
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
    "generate": ("█", "magenta"),
    "update": ("▒", "green"),
    "measure": ("░", "yellow"),
    "other": ("·", "dim"),
}


def _fitted(fragments: Fragments, width: int, ascii_only: bool) -> Text:
    """One line of at most `width` characters; a mark shows where it was cut, so that no cut number passes for whole."""
    pieces = [(to_ascii(text) if ascii_only else text, style) for text, style in fragments]
    line = Text.assemble(*pieces, overflow="crop", no_wrap=True)
    if line.cell_len > width:
        line.truncate(max(width - 1, 0))
        line.append("~" if ascii_only else "…")
    return line
