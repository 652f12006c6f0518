"""The rows as one table in Markdown, and where that stands on a page."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.faults.record import Row, faults_in

BEGIN, END = "<!-- make test-faults: begin -->", "<!-- make test-faults: end -->"
"""What stands between these lines of a page is replaced."""
TITLES = {
    "kills": "SIGKILL",
    "flips": "A bit turned over",
    "disks": "A full disk",
    "signals": "Other signals",
    "inputs": "Bad inputs",
    "soak": "Soak",
}


def render(record: Mapping[str, Sequence[Row]]) -> str:
    """A row for each kind and subject; then what did not hold, and each bad input with its line."""
    made = {name: rows for name, rows in record.items() if rows}
    lines = ["| fault | in what | faults | as promised | what came of it |", "|---|---|---|---|---|"]
    for name, rows in made.items():
        lines += [row for subject in dict.fromkeys(row.subject for row in rows) for row in summary(name, subject, rows)]
        held = sum(row.faults for row in rows if row.held)
        lines.append(f"| **{TITLES[name]}** | **all** | **{faults_in(rows)}** | **{held}** | |")
    return "\n".join([*lines, *failures(made), *input_lines(made.get("inputs", ()))])


def summary(name: str, subject: str, rows: Sequence[Row]) -> Iterator[str]:
    own = [row for row in rows if row.subject == subject]
    held = faults_in(row for row in own if row.held)
    outcomes = Counter(f"{row.fault}: {row.outcome}" if name == "soak" else row.outcome for row in own)
    words = "; ".join(f"{cell(outcome)} × {count}" for outcome, count in outcomes.most_common())
    yield f"| {TITLES[name]} | {cell(subject)} | {faults_in(own)} | {held} | {words} |"


def failures(record: Mapping[str, Sequence[Row]]) -> list[str]:
    failed = [(name, row) for name, rows in record.items() for row in rows if not row.held]
    if not failed:
        return ["", "Every one of them ended as promised."]
    lines = [
        f"| {TITLES[name]} | {cell(row.subject)} | {cell(row.fault)} | {row.exit_code} | "
        f"{cell(row.outcome)} | {code(row.line)} |"
        for name, row in failed
    ]
    head = ["| fault | in what | which | exit code | outcome | last line |", "|---|---|---|---|---|---|"]
    return ["", f"Not as promised: {len(failed)}.", "", *head, *lines]


def input_lines(rows: Sequence[Row]) -> list[str]:
    """The whole table of bad inputs."""
    lines: list[str] = []
    for given in dict.fromkeys(row.subject for row in rows):
        lines += ["", f"### {given[0].upper()}{given[1:]}", "", "| typed | exit code | last line |", "|---|---|---|"]
        lines += [
            f"| {code(row.fault)} | {row.exit_code}{'' if row.held else ' **!**'} | {code(row.line)} |"
            for row in rows
            if row.subject == given
        ]
    return lines


def write(page: Path, record: Mapping[str, Sequence[Row]]) -> None:
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{page} has no lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{render(record)}\n\n{END}{after}")


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def code(text: str) -> str:
    """As code, whatever is in it."""
    if not text:
        return "(nothing)"
    fence = "``" if "`" in text else "`"
    return f"{fence} {text} {fence}".replace("|", "\\|") if fence == "``" else f"`{text}`".replace("|", "\\|")
