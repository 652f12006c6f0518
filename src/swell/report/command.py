"""`swell report`: its options, and what it prints."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from swell.errors import ConfigError


@dataclass(frozen=True)
class Report:
    """Write one HTML page that compares runs: verdict, intervals, curves, batches, costs. It needs no network."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, or folders that hold some at any depth."""
    out: Path | None = None
    """The file; by default report.html in the first directory."""
    csv: Path | None = None
    """Also write the numbers behind every figure into this file, or into report.csv of this folder."""
    json: Path | None = None
    """The same as JSON, into this file ending in .json."""
    about: str | None = None
    """The variant that the verdict is about; by default the first adaptive one."""
    title: str | None = None
    """Headline of the page."""
    debug: bool = False
    """Show the traceback of an error."""


def report(command: Report) -> None:
    from swell.report.write import write_numbers, write_report  # imports numpy

    if not command.directories:
        raise ConfigError("name a run directory or a folder of them, for example `swell report bench`")
    if command.json is not None and command.json.suffix != ".json":
        raise ConfigError(f"json must be a file whose name ends in .json, got {command.json}")
    if command.csv is not None and command.csv.suffix == ".json":
        raise ConfigError(f"csv must not end in .json, got {command.csv}; that is --json")
    out = command.out or command.directories[0] / "report.html"
    print(f"report: {write_report(command.directories, out, command.about, command.title)}")
    for target in (command.csv, command.json):
        if target is not None:
            print(f"numbers: {write_numbers(command.directories, target, command.about)}")
