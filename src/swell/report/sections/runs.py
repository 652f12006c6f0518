"""Sections on the runs themselves: how training went, where the time goes, options, all runs, versions."""

import json
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from swell.report import curves, figures
from swell.report.cautions import listed
from swell.report.page import (
    Html,
    Page,
    bdi,
    first_upper,
    format_duration,
    format_number,
    join,
    kind_remarks,
    plot_grid,
    remark,
    scroll_table,
    tag,
)
from swell.report.records import RunRecord, kinds_of, natural_key
from swell.report.run_files import clean_text
from swell.report.words import Kind

NOT_COMPARED = {"env", "seed", "label", "ramp_from", "out", "output_dir", "logging_dir", "run_name"}
"""Options that say which run it is, not what it does."""


def curve_section(page: Page) -> Html:
    """Scores over training, over three x axes."""
    plots = page.plot_per_env(lambda env: curves.score_curves(page.records, page.labels, env))
    if not plots:
        return Html()
    names = curves.axes(page.words)
    options = join(tag("label", join([_axis_button(axis), tag("span", name)])) for axis, name in names.items())
    switch = tag("fieldset", join([tag("legend", "x axis"), options]), class_="switch")
    notes = kind_remarks({kind: kind.score_note for kind in page.kinds})
    if max(len(page.runs_of(label)) for label in page.labels) > 1:
        note = (
            "Lines are means over runs, bands 95 % intervals. Where a run ends earlier than others, the mean is of "
            "fewer runs from there on."
        )
    else:
        note = f"Diamonds: {listed([kind.evaluation for kind in page.kinds])}."
    return join([notes, remark(note), switch, plots])


def _axis_button(name: figures.Axis) -> Html:
    return Html(f'<input type="radio" name="axis" value="{name}"{" checked" if name == "clock" else ""}>')


def batch_section(page: Page) -> Html:
    """What the scaler moves, over training."""
    plots = page.plot_per_env(lambda env: curves.batch_curves(page.records, page.labels, env))
    return join([kind_remarks({kind: kind.batch_note for kind in page.kinds}), plots]) if plots else Html()


def ess_section(page: Page) -> Html:
    """The effective sample size over training, where the objective has one."""
    plots = page.plot_per_env(lambda env: curves.ess_curves(page.records, page.labels, env))
    note = (
        "The share e of a batch that counts once its samples are weighted by how much likelier the policy has made "
        "them: 1 while the policy is the one that sampled, lower the further it has gone. It is how far the ess "
        "objective trusts a batch; variants with another objective have none."
    )
    return join([remark(note), plots]) if plots else Html()


def signal_section(page: Page) -> Html:
    """The readings over training, a block for each signal."""
    parts: list[Html] = []
    for signal in sorted({record.log.signal for record in page.records if record.log.readings.size}):
        draw = partial(curves.reading_curves, page.records, page.labels, signal=signal)
        parts += [tag("h3", first_upper(curves.signal_name(signal))), page.plot_per_env(draw)]
    measured = kinds_of(record for record in page.records if record.log.readings.size)
    return join([kind_remarks({kind: kind.signal_note for kind in measured}), *parts])


def time_section(page: Page) -> Html:
    """Seconds of each phase, for each kind of run."""
    return join(_time_of(page, kind) for kind in page.kinds)


def _time_of(page: Page, kind: Kind) -> Html:
    seconds = {label: phases for label in page.labels if (phases := _phase_seconds(page.runs_of(label), kind))}
    if not seconds:
        return Html()
    unit = f"seconds per {kind.time_per:,} {kind.words.clock}"
    note = (
        f"{first_upper(unit)}, mean over runs: {kind.time_note}. Compare only runs made on the same, equally busy "
        "machine."
    )
    figure = figures.time_per_phase(seconds, kind.phases, page.labels, unit)
    return join([remark(note), plot_grid(page.plot(figure), "wide")])


def _phase_seconds(runs: Sequence[RunRecord], kind: Kind) -> dict[str, float]:
    rows: list[dict[str, float]] = []
    for run in runs:
        clock, wall = run.clock, run.wall_seconds
        if run.kind is kind and run.log.seconds and clock and wall:
            other = max(0.0, wall - sum(run.log.seconds.values()))
            seconds = {**run.log.seconds, figures.OTHER: other}
            rows.append({phase: value / clock * kind.time_per for phase, value in seconds.items()})
    if not rows:
        return {}
    return {phase: float(np.mean([row.get(phase, 0.0) for row in rows])) for phase in (*kind.phases, figures.OTHER)}


def config_section(page: Page) -> Html:
    """Options in which variants differ, or all of the only one."""
    known = [label for label in page.labels if any(run.config for run in page.runs_of(label))]
    if not known:
        return Html()
    if len(known) == 1:
        return _whole_config(page, known[0])
    fields = sorted({name for label in known for run in page.runs_of(label) for name in run.config} - NOT_COMPARED)
    rows: list[list[str]] = []
    for name in fields:
        values = {label: _values_by_env(page.runs_of(label), name) for label in known}
        if _differ(list(values.values())):
            rows.append([tag("code", name), *(_values_cell(values[label]) for label in known)])
    if not rows:
        return remark("The variants do not differ in any option.")
    note = f"Options in which variants differ on the same {page.words.place}; all others are equal."
    note += "".join(kind.option_note for kind in page.kinds)
    return join([remark(note), scroll_table(["Option", *known], rows)])


def _whole_config(page: Page, label: str) -> Html:
    fields = sorted({name for run in page.runs_of(label) for name in run.config})
    rows = [[tag("code", name), _values_cell(_values_by_env(page.runs_of(label), name))] for name in fields]
    table = scroll_table(["Option", "Value"], rows)
    return tag("details", join([tag("summary", f"All {len(rows)} options"), table]))


def _values_by_env(runs: Sequence[RunRecord], name: str) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for run in runs:
        if run.config:
            values.setdefault(run.env, set()).add(_option(run, name))
    return values


def _option(run: RunRecord, name: str) -> str:
    """An option in words; `auto` is no answer to which network it was."""
    if name == "network" and run.network:
        return run.network
    text = json.dumps(run.config[name], ensure_ascii=False) if name in run.config else "absent"
    return clean_text(text.strip('"'))


def _differ(by_variant: Sequence[Mapping[str, set[str]]]) -> bool:
    envs = {env for values in by_variant for env in values}
    return any(len({frozenset(values[env]) for values in by_variant if env in values}) > 1 for env in envs)


def _values_cell(by_env: Mapping[str, set[str]]) -> str:
    values = sorted(set().union(*by_env.values()) if by_env else set[str](), key=natural_key)
    return ", ".join(values[:4]) + (f", … ({len(values)} values)" if len(values) > 4 else "")


def unfinished_section(page: Page) -> Html:
    """Runs without a score, and the last lines of their logs."""
    records = [record for record in page.records if not record.finished or record.problem]
    if not records:
        return Html()
    rows = [
        [
            bdi(record.name),
            _status(record),
            format_number(record.clock),
            record.problem or "–",
            record.last_log_line or "–",
            f"{record.console.parent.name}/{record.console.name}" if record.console else "–",
        ]
        for record in records
    ]
    head = ["Run", "Status", first_upper(page.words.clock), "Files", "Last line of its log", "Log"]
    return join([remark("They have no score above."), scroll_table(head, rows, wrap_from=3, tall=len(rows) > 14)])


def run_section(page: Page) -> Html:
    """A row for each run."""
    if len(page.records) == 1:
        return Html()
    rows = [
        [
            bdi(record.env or "–"),
            bdi(record.label or "–"),
            "–" if record.seed is None else str(record.seed),
            _status(record),
            format_number(record.score(page.scoring.field)),
            format_number(record.clock),
            format_number(record.gradient_steps),
            format_duration(record.wall_seconds),
            bdi(record.name),
        ]
        for record in page.records
    ]
    words = page.words
    counts = [first_upper(words.clock), first_upper(words.updates)]
    head = [first_upper(words.place), "Variant", "Seed", "Status", "Score", *counts, "Wall-clock", "Folder"]
    return join([remark(f"Score: {page.scoring.field_name}."), scroll_table(head, rows, tall=len(rows) > 14)])


def _status(record: RunRecord) -> Html:
    return tag("span", record.status, class_=f"status status-{record.status}")


def version_section(page: Page) -> Html:
    """What the runs were made with."""
    found: dict[str, dict[str, int]] = {}
    for record in page.records:
        hardware = {"device": record.device, "machine": record.machine, "threads": record.threads}
        for name, value in {**hardware, "network": record.network, **record.versions}.items():
            if value:
                counts = found.setdefault(name, {})
                counts[value] = counts.get(value, 0) + 1
    rows: list[list[str]] = []
    for name, counts in found.items():
        several = len(counts) > 1
        values = [f"{value} ({count} runs)" if several else value for value, count in sorted(counts.items())]
        rows.append([name, ", ".join(values)])
    return scroll_table(["What", "Value"], rows) if rows else Html()
