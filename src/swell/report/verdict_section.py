"""The top of a report: the verdict in sentences, or the facts of a single run, and a row for each variant."""

from collections.abc import Iterable

import numpy as np

from swell.report.markup import Html, bdi, duration_words, join, number_words, remark, scroll_table, tag
from swell.report.page import Page, swatch
from swell.report.records import RunRecord
from swell.report.verdict import Verdict

MARKS = {"beats": "▲", "loses": "▼", "undecided": "≈", "too few": "?", "apart": "–"}


def verdict_section(page: Page) -> Html:
    """What came out, how sure that is, and what to read with care."""
    verdict = page.verdict
    parts = [
        tag("h2", "Verdict" if len(page.labels) > 1 else "Summary"),
        tag("p", verdict.headline, class_="headline"),
    ]
    if verdict.basis:
        parts.append(tag("p", verdict.basis, class_="note"))
    if len(page.records) == 1:
        parts.append(_tiles(page.records[0]))
    parts += [_findings(verdict), _cautions(verdict)]
    if len(page.records) > 1:
        parts.append(_variant_table(page))
    return join(parts)


def _findings(verdict: Verdict) -> Html:
    items: list[Html] = []
    for finding in verdict.findings:
        notes = join(tag("span", note, class_="aside") for note in finding.notes)
        text = tag("div", join([tag("span", finding.sentence), notes]))
        mark = tag("span", MARKS[finding.outcome], class_="mark", aria_hidden="true")
        items.append(tag("li", join([mark, text]), class_=finding.outcome.replace(" ", "-")))
    return tag("ul", join(items), class_="findings") if items else Html()


def _cautions(verdict: Verdict) -> Html:
    if not verdict.cautions:
        return Html()
    items = join(tag("li", caution) for caution in verdict.cautions)
    return tag("div", join([tag("h3", "Read with care"), tag("ul", items)]), class_="cautions")


def _tiles(record: RunRecord) -> Html:
    horizon = record.log.horizon[np.isfinite(record.log.horizon)]
    facts = [
        ("Status", record.status),
        ("Greedy evaluation", number_words(record.score("evaluation_return"))),
        ("Last 100 training episodes", number_words(record.score("final_return"))),
        ("Env steps", number_words(record.env_steps)),
        ("Gradient steps", number_words(record.gradient_steps)),
        ("Horizon", f"{horizon[0]:.0f} → {horizon[-1]:.0f}" if horizon.size else ""),
        ("Wall-clock", duration_words(record.wall_seconds)),
        ("Env steps per second", number_words(record.steps_per_second)),
        ("Peak memory", f"{record.peak_memory_mb:,.0f} MiB" if record.peak_memory_mb else ""),
    ]
    known = [(name, value) for name, value in facts if value not in ("", "–")]
    tiles = (tag("div", join([tag("dt", name), tag("dd", value)])) for name, value in known)
    return tag("dl", join(tiles), class_="tiles")


def _variant_table(page: Page) -> Html:
    rows: list[list[str]] = []
    for variant, label in enumerate(page.labels):
        runs = page.runs_of(label)
        rows.append(
            [
                join([swatch(variant), " ", bdi(label)]),
                f"{len(runs)}",
                f"{sum(run.finished for run in runs)}",
                number_words(_median(run.env_steps for run in runs)),
                number_words(_median(run.gradient_steps for run in runs)),
                duration_words(_median(run.wall_seconds for run in runs)),
                number_words(_median(run.steps_per_second for run in runs)),
            ]
        )
    head = ["Variant", "Runs", "Finished", "Env steps", "Gradient steps", "Wall-clock", "Steps per second"]
    if not rows:
        return Html()
    return join(
        [scroll_table(head, rows, numbers_from=1), remark("Last four columns: medians over the runs of a variant.")]
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
