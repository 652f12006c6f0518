"""The report: one HTML file that says how variants compare, with everything inside and nothing fetched.

Whatever comes from a run (names, error texts, options) is escaped, and the page's policy lets only its own two scripts
run, so that a run named `<script>…` is only an odd name.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swell.errors import ConfigError
from swell.report.numbers import as_csv, as_json, rows_of
from swell.report.page import Html, Page, bdi, escape, first_upper, join, swatch, tag
from swell.report.records import RunRecord, read_runs
from swell.report.run_files import clean_text
from swell.report.sections.comparison import (
    gradient_step_section,
    improvement_section,
    probability_section,
    size_section,
)
from swell.report.sections.cost import cost_section
from swell.report.sections.regret import regret_section
from swell.report.sections.results import aggregate_section, atari_section, profile_section, verdict_section
from swell.report.sections.runs import (
    batch_section,
    config_section,
    curve_section,
    ess_section,
    run_section,
    signal_section,
    time_section,
    unfinished_section,
    version_section,
)
from swell.runs.run_directory import storage_errors, write_durably


def write_report(paths: Sequence[Path], out: Path, about: str | None = None, title: str | None = None) -> Path:
    """Write the report on all runs at or under `paths`, and say where it is.

    `about` is the label of the variant that the others are compared with; by default the adaptive one. `out` may be a
    folder; the page is then its report.html.
    """
    return _write(out, "report.html", render(read_runs(paths), about, title))


def write_numbers(paths: Sequence[Path], out: Path, about: str | None = None) -> Path:
    """Write the numbers behind every figure as CSV, or as JSON where the file's name ends so; a folder gets CSV."""
    page = Page(read_runs(paths), about)
    figures = [
        (name, page.captions[number], page.figures[number])
        for name, numbers in _figures_by_section(page)
        for number in numbers
    ]
    rows = list(rows_of(figures, page.labels))
    return _write(out, "report.csv", as_json(rows) if out.suffix == ".json" else as_csv(rows))


def _write(out: Path, name: str, text: str) -> Path:
    """In one step; `out` may be a folder, which gets a file of that name."""
    target = out / name if out.is_dir() else out
    with storage_errors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            write_durably(temporary, text.encode("utf-8", "replace"))
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    return target


def render(records: Sequence[RunRecord], about: str | None = None, title: str | None = None) -> str:
    """The page as text."""
    page = Page(records, about)
    sections = [(name, heading, draw(page)) for name, heading, draw in _sections(page)]
    present = [(name, heading, content) for name, heading, content in sections if content]
    links = join(tag("a", heading, href=f"#{name}") for name, heading, _ in present if heading)
    first, *others = [
        tag("section", join([tag("h2", heading) if heading else Html(), content]), id=name)
        for name, heading, content in present
    ]
    body = join([first, tag("nav", links, class_="contents", aria_label="Contents"), *others])
    return _fill_template(
        title=escape(clean_text(title) if title else _default_title(page)),
        subtitle=escape(_subtitle(page)),
        toolbar=_toolbar(page.labels),
        body=body,
        footer=escape(f"Made by `swell report` on {datetime.now():%Y-%m-%d %H:%M}. This file needs no network."),
        data=_script_safe([figure.as_json() for figure in page.figures]),
    )


def _sections(page: Page) -> list[tuple[str, str, Callable[[Page], Html]]]:
    """Name, heading and content of each, in the order of the page."""
    return [
        ("verdict", "", verdict_section),
        ("aggregate", "Aggregate scores", aggregate_section),
        ("profile", "Performance profile", profile_section),
        ("curves", "Learning curves", curve_section),
        ("batch", first_upper(page.words.batch), batch_section),
        ("ess", "Effective sample size", ess_section),
        ("signal", "How much the policy changes", signal_section),
        ("probability", "Probability of improvement", probability_section),
        ("improvement", f"Improvement per {page.words.place}", improvement_section),
        ("regret", "Regret", regret_section),
        ("cost", "What a score costs", cost_section),
        ("size", "Improvement over batch and network size", size_section),
        ("gradient-steps", f"Score and {page.words.updates}", gradient_step_section),
        ("time", "Where the time goes", time_section),
        ("atari", "Atari-5 and Atari-10 estimates", atari_section),
        ("config", "Configuration", config_section),
        ("trouble", "Runs that did not finish", unfinished_section),
        ("runs", "All runs", run_section),
        ("versions", "Versions and hardware", version_section),
    ]


def _figures_by_section(page: Page) -> Iterator[tuple[str, range]]:
    for name, _, draw in _sections(page):
        before = len(page.figures)
        draw(page)
        yield name, range(before, len(page.figures))


def _toolbar(labels: Sequence[str]) -> Html:
    if len(labels) < 2:
        return Html()
    boxes = join(
        tag(
            "label",
            join([Html(f'<input type="checkbox" data-variant="{number}" checked>'), swatch(number), bdi(label)]),
            title=label,
        )
        for number, label in enumerate(labels)
    )
    row = tag("div", boxes, class_="row", role="group", aria_label="Variants shown in all plots")
    return tag("div", row, class_="toolbar")


def _default_title(page: Page) -> str:
    if len(page.records) == 1:
        record = page.records[0]
        return f"{record.label} on {record.env}, seed {record.seed}" if record.label else record.name
    if not page.labels:
        return "Runs"
    where = page.envs[0] if len(page.envs) == 1 else f"{len(page.envs)} {page.words.place}s"
    if len(page.labels) > 2:
        return f"{page.labels[0]} and {len(page.labels) - 1} other variants on {where}"
    return f"{' and '.join(page.labels)} on {where}"


def _subtitle(page: Page) -> str:
    if len(page.records) == 1:
        return page.records[0].name
    finished = sum(record.finished for record in page.records)
    envs = ", ".join(page.envs[:6]) + (", …" if len(page.envs) > 6 else "")
    return f"{len(page.records)} runs, {finished} finished · {envs}"


def _script_safe(value: Any) -> str:
    """JSON that cannot end the script element it stands in, and that has no NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _fill_template(**parts: str) -> str:
    folder = files("swell.report") / "assets"
    script = (folder / "report.js").read_text(encoding="utf-8")
    plotly = _plotly_source()
    digests = (hashlib.sha256(source.encode()).digest() for source in (plotly, script))
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    parts |= {
        "policy": f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'",
        "style": (folder / "report.css").read_text(encoding="utf-8"),
        "script": script,
        "plotly": plotly,
    }
    template = (folder / "report.html").read_text(encoding="utf-8")
    # All at once: what has been filled in is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _plotly_source() -> str:
    """plotly.js as the plotly package ships it; importing that package would take longer than the report."""
    spec = find_spec("plotly")
    folder = next(iter(spec.submodule_search_locations or []), None) if spec else None
    source = Path(folder) / "package_data" / "plotly.min.js" if folder else None
    if source is None or not source.is_file():
        raise ConfigError("the report needs plotly: pip install plotly")
    return source.read_text(encoding="utf-8")
