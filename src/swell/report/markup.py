"""HTML in which all text is escaped: elements, tables, numbers in words."""

import html
from collections.abc import Callable, Iterable, Sequence

from swell.report.stats import Interval


class Html(str):
    """Text that is markup already; any other text is escaped on its way into the page."""

    __slots__ = ()


def tag(name: str, content: str = "", **attributes: str) -> Html:
    """An element; text is escaped, markup is not. `class_` and `data_x` are written `class` and `data-x`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items() if value
    )
    return Html(f"<{name}{written}>{escape(content)}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """All parts as one piece of markup."""
    return Html("".join(escape(part) for part in parts))


def escape(text: str) -> Html:
    """Text as markup; markup stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def bdi(text: str) -> Html:
    """Text whose direction of writing does not reach beyond it."""
    return tag("bdi", text)


def remark(text: str) -> Html:
    """A paragraph that explains what stands below or above it."""
    return tag("p", text, class_="note")


def scroll_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers_from: int = 99, wrap_from: int = 99, tall: bool = False
) -> Html:
    """A table that scrolls inside its own box; columns from `numbers_from` on are aligned right."""

    def kind(column: int) -> str:
        return "number" if column >= numbers_from else "wrap" if column >= wrap_from else "name"

    titles = join(tag("th", title, class_=kind(column), scope="col") for column, title in enumerate(head))
    lines = join(
        tag("tr", join(tag("td", cell, class_=kind(column)) for column, cell in enumerate(row))) for row in rows
    )
    table = tag("table", join([tag("thead", tag("tr", titles)), tag("tbody", lines)]))
    return tag(
        "div", table, class_="scroll tall" if tall else "scroll", tabindex="0", role="region", aria_label="Table"
    )


def plot_grid(content: Html, kind: str = "") -> Html:
    """A box for figures; `kind` says how many stand beside each other."""
    return tag("div", content, class_=f"plots {kind}".strip())


def grid_kind(envs: Sequence[str]) -> str:
    """The kind of box for one figure an env."""
    return {1: "wide", 2: "pair", 4: "pair"}.get(len(envs), "")


def interval_cell(interval: Interval, words: Callable[[float], str]) -> Html:
    """A value with its bounds, all in the same words."""
    bounds = f" [{words(interval.low)}, {words(interval.high)}]"
    return join([words(interval.value), tag("span", bounds, class_="interval")])


def number_words(value: float | None) -> str:
    """Four digits, or all before the point."""
    if value is None:
        return "–"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", "−")


def share_words(value: float) -> str:
    """Two digits after the point."""
    return f"{value:.2f}".replace("-", "−")


def signed_words(value: float) -> str:
    """Three digits and the sign, or all before the point."""
    return (f"{value:+,.0f}" if abs(value) >= 1000 else f"{value:+.3g}").replace("-", "−")


def duration_words(seconds: float | None) -> str:
    """Seconds, minutes or hours; a dash for what is not known."""
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
