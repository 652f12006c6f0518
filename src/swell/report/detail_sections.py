"""Sections to look things up in: options, runs that did not finish, all runs, versions."""

import json
from collections.abc import Mapping, Sequence

from swell.report.markup import Html, bdi, duration_words, join, number_words, remark, scroll_table, tag
from swell.report.page import Page
from swell.report.records import RunRecord, natural_key
from swell.report.untrusted import clean_text

NOT_COMPARED = {"env", "seed", "label", "ramp_from", "out"}
"""Options that say which run it is, not what it does."""


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
    note = "Options in which variants differ on the same env; all others are equal. Presets choose some by env."
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


def trouble_section(page: Page) -> Html:
    """Runs without a score, and their last words."""
    records = [record for record in page.records if not record.finished or record.problem]
    if not records:
        return Html()
    rows = [
        [
            bdi(record.name),
            _status(record),
            number_words(record.env_steps),
            record.problem or "–",
            record.last_words or "–",
            f"{record.console.parent.name}/{record.console.name}" if record.console else "–",
        ]
        for record in records
    ]
    head = ["Run", "Status", "Env steps", "Files", "Last line of its log", "Log"]
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
            number_words(record.score(page.scoring.field)),
            number_words(record.env_steps),
            number_words(record.gradient_steps),
            duration_words(record.wall_seconds),
            bdi(record.name),
        ]
        for record in page.records
    ]
    head = ["Env", "Variant", "Seed", "Status", "Score", "Env steps", "Gradient steps", "Wall-clock", "Folder"]
    return join([remark(f"Score: {page.scoring.field_words}."), scroll_table(head, rows, tall=len(rows) > 14)])


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
