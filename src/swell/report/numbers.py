"""The numbers behind every figure of a report, as a table (CSV) or as JSON: what a plot shows, and nothing else."""

import csv
import html
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from swell.report.figures import Figure

COLUMNS = ("figure", "section", "caption", "x_axis", "y_axis", "variant", "line", "x", "y", "low", "high")


def rows_of(figures: Sequence[tuple[str, str, Figure]], labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each point; the figures come with their section and their caption. What is not known is None."""
    for number, (section, caption, figure) in enumerate(figures):
        for entry in figure.entries:
            variant = None if entry["variant"] is None else labels[entry["variant"]]
            titles = _titles(figure, entry)
            shared = {"figure": number + 1, "section": section, "caption": caption, **titles, "variant": variant}
            for point in _points(entry):
                yield {**shared, "line": _plain(entry["trace"].get("name", "")), **point}


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list[str](COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(rows: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"columns": COLUMNS, "rows": rows}, ensure_ascii=False, indent=1) + "\n"


def _titles(figure: Figure, entry: dict[str, Any]) -> dict[str, str]:
    layout = figure.layout
    x_title = layout["axis_titles"][entry["axis"]] if entry["axis"] else _title(layout, "xaxis")
    return {"x_axis": _plain(x_title), "y_axis": _title(layout, "yaxis")}


def _title(layout: dict[str, Any], axis: str) -> str:
    return _plain(layout.get(axis, {}).get("title", {}).get("text", ""))


def _points(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    trace, band = entry["trace"], entry.get("band")
    ys = trace["y"]
    xs = trace["x"] if "x" in trace else [trace["x0"] + trace["dx"] * at for at in range(len(ys))]
    bars, is_wide = (trace["error_x"], True) if "error_x" in trace else (trace.get("error_y"), False)
    for at, (x, y) in enumerate(zip(xs, ys, strict=True)):
        low, high = (band["low"][at], band["high"][at]) if band else (None, None)
        middle = x if is_wide else y
        if bars and middle is not None:
            low, high = middle - (bars["arrayminus"][at] or 0.0), middle + (bars["array"][at] or 0.0)
        yield {"x": _plain(x), "y": _plain(y), "low": low, "high": high}


def _plain(value: Any) -> Any:
    """Names as they were before they were escaped for plotly."""
    return html.unescape(value) if isinstance(value, str) else value
