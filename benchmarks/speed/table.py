"""Results and their Markdown: medians, ratios, spreads, bars. Pure functions of what was measured."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
"""What stands between these lines of a page is replaced by each run."""


@dataclass(frozen=True)
class Spread:
    """The median of the blocks, with the worst and the best."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Bar:
    """What a number is asked to be."""

    side: Literal["at least", "at most"]
    value: float

    def met(self, value: float) -> bool:
        return value >= self.value if self.side == "at least" else value <= self.value


@dataclass(frozen=True)
class Comparison:
    """Ours and another side in the same blocks; one number a block each."""

    workload: str
    ours_label: str
    ours: Sequence[float]
    other_label: str
    other: Sequence[float]
    unit: str
    bar: Bar | None
    load: tuple[float, float]
    about: Literal["others", "horizons"] = "others"


@dataclass(frozen=True)
class Limit:
    """What the machine could do at a workload, and what we do; one number a block each."""

    workload: str
    label: str
    threads: int
    ours: Sequence[float]
    """Env steps per second."""
    envs_alone: Sequence[float]
    """Env steps per second of the envs with random actions and no learner."""
    peak: Sequence[float]
    """Floating-point operations per second of a large matrix product."""
    flops_per_step: float
    time_split: Mapping[str, float]
    """Shares of our own time by phase."""
    bar: Bar | None
    load: tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """One number about ourselves; one value a block."""

    row: str
    what: str
    values: Sequence[float]
    form: Literal["percent", "gigabytes", "seconds"]
    bar: Bar | None
    load: tuple[float, float]


@dataclass(frozen=True)
class Skipped:
    """What was not measured, and why."""

    row: str
    reason: str


Result = Comparison | Limit | Figure | Skipped


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratio(ours: Sequence[float], other: Sequence[float]) -> Spread:
    """Of each block with its neighbour, so that what slows the whole machine for a while slows both."""
    return spread([one / two for one, two in zip(ours, other, strict=True)])


def limit_rates(envs_alone: Sequence[float], peak: Sequence[float], flops_per_step: float) -> list[float]:
    """Env steps per second if envs and network took turns, the network at the peak of a matrix product."""
    return [1.0 / (1.0 / steps + flops_per_step / flops) for steps, flops in zip(envs_alone, peak, strict=True)]


def share_at(reading_seconds: float, iteration_seconds: float, every: int) -> float:
    """The share of all time that a reading takes where there is one every so many iterations."""
    return reading_seconds / (every * iteration_seconds + reading_seconds)


def render(
    results: Sequence[Result],
    machine: Mapping[str, str],
    titles: Mapping[str, str],
    goes: Sequence[Sequence[str]] = (),
) -> str:
    """All that was measured, as Markdown."""
    comparisons = [result for result in results if isinstance(result, Comparison)]
    limits = [result for result in results if isinstance(result, Limit)]
    figures = [result for result in results if isinstance(result, Figure)]
    skipped = [result for result in results if isinstance(result, Skipped)]
    measured = {result.workload for result in (*comparisons, *limits)}
    parts = [
        _comparison_section("Beside others", "others", comparisons),
        _section("Beside the limit", LIMIT_COLUMNS, [_limit_cells(row) for row in limits]),
        _comparison_section("Horizon 128 beside horizon 16", "horizons", comparisons),
        _section("By ourselves", FIGURE_COLUMNS, [_figure_cells(row) for row in figures]),
        _section("Not measured", ("row", "why"), [(row.row, row.reason) for row in skipped]),
        _section("Workloads", ("name", "settings"), [pair for pair in titles.items() if pair[0] in measured]),
        _section("When", ("rows", "date", "swell", "turns", "other than below"), goes),
        _section("Machine and versions", ("", ""), list(machine.items())),
    ]
    return "\n\n".join(part for part in parts if part)


def insert(page: str, generated: str) -> str:
    """The page with what stands between the marks replaced; a page without marks is nothing but the generated part."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        before, after = "", "\n"
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}"


def show_bar(bar: Bar | None, form: str = "{:g}") -> str:
    return "–" if bar is None else f"{'≥' if bar.side == 'at least' else '≤'} {form.format(bar.value)}"


def verdict(bar: Bar | None, value: float) -> str:
    return "–" if bar is None else ("met" if bar.met(value) else "**missed**")


COMPARISON_COLUMNS = ("workload", "ours", "other side", "its", "unit", "ratio (min..max)", "bar", "", "load")
LIMIT_COLUMNS = (
    "workload",
    "threads",
    "envs alone, steps/s",
    "peak, GFLOP/s",
    "MFLOP a step",
    "limit, steps/s",
    "ours, steps/s",
    "share (min..max)",
    "bar",
    "",
    "our time",
    "load",
)
FIGURE_COLUMNS = ("row", "what", "median (min..max)", "bar", "", "load")
FORMS = {"percent": "{:.2%}", "gigabytes": "{:.2f} GB", "seconds": "{:.2f} s"}


def _comparison_section(title: str, about: str, rows: Sequence[Comparison]) -> str:
    return _section(title, COMPARISON_COLUMNS, [_comparison_cells(row) for row in rows if row.about == about])


def _comparison_cells(row: Comparison) -> tuple[str, ...]:
    found = ratio(row.ours, row.other)
    ours, other = (_number(statistics.median(values)) for values in (row.ours, row.other))
    workload = f"{row.workload}, {row.ours_label}" if row.ours_label else row.workload
    bar, met = show_bar(row.bar), verdict(row.bar, found.median)
    return (workload, ours, row.other_label, other, row.unit, _spread_cell(found, "{:.2f}"), bar, met, _load(row.load))


def _limit_cells(row: Limit) -> tuple[str, ...]:
    limits = limit_rates(row.envs_alone, row.peak, row.flops_per_step)
    share = ratio(row.ours, limits)
    return (
        f"{row.workload}, {row.label}" if row.label else row.workload,
        str(row.threads),
        _number(statistics.median(row.envs_alone)),
        f"{statistics.median(row.peak) / 1e9:,.0f}",
        f"{row.flops_per_step / 1e6:,.2f}",
        _number(statistics.median(limits)),
        _number(statistics.median(row.ours)),
        _spread_cell(share, "{:.1%}"),
        show_bar(row.bar, "{:.0%}"),
        verdict(row.bar, share.median),
        ", ".join(f"{phase} {part:.0%}" for phase, part in row.time_split.items()),
        _load(row.load),
    )


def _figure_cells(row: Figure) -> tuple[str, ...]:
    found, form = spread(row.values), FORMS[row.form]
    bar, met = show_bar(row.bar, form), verdict(row.bar, found.median)
    return (row.row, row.what, _spread_cell(found, form), bar, met, _load(row.load))


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [columns, ["---"] * len(columns), *rows]
    return f"### {title}\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _spread_cell(found: Spread, form: str) -> str:
    return f"{form.format(found.median)} ({form.format(found.low)}..{form.format(found.high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _load(load: tuple[float, float]) -> str:
    return f"{load[0]:.1f} → {load[1]:.1f}"
