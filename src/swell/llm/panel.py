"""A language-model run as a person sees it: the live panel, the line of a log, and the words at the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult

from swell.display.panel import Fragments, drawn_panel, progress_bar, time_shares
from swell.display.sinks import History, Progress, Row, finite, number, sparkline
from swell.display.words import (
    closing_report,
    count,
    decimal,
    duration,
    explain,
    explain_unadapted,
    percent,
    size_story,
)

LEARNING_WORDS = {
    "loss": "loss",
    "gradient_norm": "gradient",
    "learning_rate": "rate",
    "entropy": "entropy",
    "completion_length": "tokens per answer",
}


@dataclass(frozen=True)
class ModelHeader:
    """What stays the same during a run and tells it from other runs."""

    task: str
    objective: str
    network: str
    """With its size in words."""
    scaler: str
    """none, fixed, ramp or adaptive."""
    least_batch: int
    most_batch: int
    calibration_readings: int
    """That thresholds are taken from; 0 where they are given."""
    run_directory: str

    @property
    def title(self) -> str:
        return f"{self.task} · {self.objective} · {self.network}"

    @property
    def scaler_words(self) -> str:
        moves = self.least_batch < self.most_batch
        sizes = f"{self.least_batch}..{self.most_batch}" if moves else str(self.most_batch)
        return f"{'TRL' if self.scaler == 'none' else self.scaler} {sizes}"


class RewardsSoFar(Progress):
    """What the rows seen until now add up to."""

    clock = "completions"
    phases = ("generate", "update", "measure")

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.evaluations: list[Row] = []
        self.last_reading: Row = {}
        self.readings = 0
        self.rewards, self.ess, self.batches = History(), History(), History()

    def add(self, row: Row) -> None:
        """Takes in one row. A metric that this row lacks keeps its last value."""
        self.latest.update(row)
        self.rewards.append(finite(row, "reward"))
        self.ess.append(finite(row, "ess"))
        self.batches.append(finite(row, "batch"))
        if number(row, "reading") is not None:
            self.last_reading = row
            self.readings += 1
        self.mark(row)


@dataclass(frozen=True)
class ModelView:
    """A run as a display shows it."""

    header: ModelHeader
    run: RewardsSoFar

    @property
    def title(self) -> str:
        return self.header.title

    @property
    def opening(self) -> list[str]:
        """What a log begins with."""
        return [f"{self.header.title} · batch {self.header.scaler_words}", self.header.run_directory]

    def add(self, row: Row) -> None:
        self.run.add(row)

    def add_evaluation(self, row: Row) -> str:
        """Takes in an evaluation and says it in words."""
        self.run.evaluations.append(row)
        return describe_evaluation(row)

    def line(self) -> str:
        """The state of the run in one line."""
        run, row = self.run, self.run.latest
        ess = number(row, "ess")
        parts = (
            f"{percent(run.fraction_done()):>4}",
            f"{count(finite(row, 'completions'))}/{run.total:,} completions",
            f"reward {decimal(number(row, 'reward'))}",
            *([] if ess is None else [f"ESS {decimal(ess)}"]),
            f"batch {count(finite(row, 'batch'))}",
            f"{count(run.steps_per_second())} per second",
            f"{duration(run.seconds_left())} left",
            why(self.header, run),
        )
        return "  ".join(parts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield drawn_panel(self.title, self.header.run_directory, self._lines, options)

    def _lines(self, room: int) -> list[tuple[str, Fragments]]:
        header, run, row = self.header, self.run, self.run.latest
        width = room - 12
        batch = f"{count(finite(row, 'batch'))} of {header.most_batch}"
        batches = sparkline(run.batches.values(), width, header.least_batch, header.most_batch)
        ess, shares = sparkline(run.ess.values(), width), run.phase_shares()
        return [
            (percent(run.fraction_done()), progress_bar(run, room)),
            ("sampled", _plain(_sampled(run))),
            ("reward", _curve(number(row, "reward"), sparkline(run.rewards.values(), width), "green")),
            *([("ESS", _curve(number(row, "ess"), ess, "magenta"))] if ess else []),
            *([("evaluated", _plain(_evaluation_story(run.evaluations)))] if run.evaluations else []),
            ("batch", [(f"{batch:<12}", "bold cyan"), (batches, "cyan")]),
            ("why", [(why(header, run), "yellow")]),
            ("update", _plain(_update(row))),
            ("learning", _plain(_learning(row))),
            *([("time", time_shares(shares, room))] if shares else []),
        ]


def why(header: ModelHeader, run: RewardsSoFar) -> str:
    """Why the batch has the size it has, from the last reading."""
    row = run.last_reading or run.latest
    reading, signal = number(row, "reading"), str(row.get("signal") or "reading")
    batch = finite(row, "batch")
    if header.scaler == "none":
        return f"TRL's own loop: batch {count(batch)}, nothing measured"
    if header.scaler != "adaptive":
        return explain_unadapted(reading, finite(run.latest, "batch"), header.scaler_words, signal, "batch")
    if header.calibration_readings and finite(run.latest, "calm_reading") is None:
        seen = min(run.readings, header.calibration_readings)
        return f"calibrating: {seen} of {header.calibration_readings} readings, batch {count(batch)} until then"
    next_batch = finite(row, "next_batch") or batch
    text = explain(reading, batch, next_batch, header.most_batch, signal, "batch")
    left = run.total - (finite(run.latest, "completions") or 0.0)
    return f"{text} (all that is left)" if 0 < left <= (next_batch or 0.0) else text


def describe_evaluation(row: Row) -> str:
    """An evaluation in words, such as "0.61 on 1,000 fresh problems at 16,000 completions"."""
    reward, problems = decimal(number(row, "mean_reward")), count(finite(row, "problems"))
    return f"{reward} on {problems} fresh problems at {count(finite(row, 'completions'))} completions"


def closing_words(
    summary: Mapping[str, object],
    batches: Sequence[float],
    evaluations: Sequence[Row],
    weights: str,
    next_commands: Sequence[str],
) -> str:
    """What a person wants to know when a run has ended; `summary` is summary.json."""
    speed = count(finite(summary, "completions_per_second"))
    peak = finite(summary, "peak_memory_mb")
    final = number(summary, "final_reward")
    lines = [
        ("run", str(summary.get("directory") or "")),
        ("reward", "" if final is None else f"{decimal(final)} (mean of the last 10 % of completions)"),
        ("evaluation", _evaluation_story(evaluations)),
        ("work", f"{count(finite(summary, 'completions'))} completions · {count(finite(summary, 'updates'))} updates"),
        ("time", f"{duration(finite(summary, 'wall_seconds'))} · {speed} completions/s"),
        ("memory", "" if peak is None else f"{count(peak)} MB at the peak"),
        ("batch", size_story(batches)),
        ("weights", weights),
    ]
    return closing_report(str(summary.get("status", "ended")), lines, next_commands)


def _evaluation_story(evaluations: Sequence[Row]) -> str:
    if not evaluations:
        return ""
    last = describe_evaluation(evaluations[-1])
    first = number(evaluations[0], "mean_reward")
    return last if len(evaluations) == 1 else f"{decimal(first)} → {last}"


def _plain(text: str) -> Fragments:
    return [(text, "")]


def _curve(value: float | None, curve: str, style: str) -> Fragments:
    return [(f"{decimal(value):<12}", f"bold {style}"), (curve, style)]


def _sampled(run: RewardsSoFar) -> str:
    done = f"{count(finite(run.latest, 'completions'))} of {run.total:,} completions"
    elapsed = duration(finite(run.latest, "wall_seconds"))
    return f"{done} · {count(run.steps_per_second())} per second · {elapsed} elapsed"


def _update(row: Row) -> str:
    return f"{count(finite(row, 'update_batch'))} completions each · {count(finite(row, 'updates'))} so far"


def _learning(row: Row) -> str:
    known = [(word, number(row, name)) for name, word in LEARNING_WORDS.items()]
    return "  ".join(f"{word} {decimal(value)}" for word, value in known if value is not None) or "–"
