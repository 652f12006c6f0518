"""What a run left behind, read with care: it may be damaged, half-written, or come from somebody else.

Nothing here raises because of what is found, and no file is read through a symbolic link.
"""

import math
import os
import re
from pathlib import Path
from typing import Any, cast

from swell.errors import SwellError
from swell.runs.run_directory import read_json

Row = dict[str, Any]


def finite_number(value: object) -> float | None:
    """A number that one can count with, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer of more than 308 digits
        return None


def whole_number(value: object) -> int | None:
    """An integer that fits into 64 bits, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def clean_text(value: object) -> str:
    """As one line without what would disturb a page: control characters, text direction marks, broken encodings."""
    text = str(value).encode("utf-8", "replace").decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+", " ", text).strip()[:300]


def clean_texts(value: object) -> dict[str, str]:
    """An object of texts, cleaned; empty if it is none."""
    if not isinstance(value, dict):
        return {}
    return {clean_text(key): clean_text(entry) for key, entry in cast("dict[Any, Any]", value).items()}


def own_file(path: Path) -> bool:
    """A plain file that is no link: a pipe would hang, and a link may lead anywhere."""
    try:
        return path.is_file() and not path.is_symlink()
    except OSError:
        return False


def read_object(path: Path) -> tuple[Row, str]:
    """The object in a JSON file, or what is wrong with the file."""
    if not own_file(path):
        return {}, "" if not os.path.lexists(path) else f"{path.name} is not a plain file"
    try:
        return read_json(path), ""
    except SwellError:
        return {}, f"{path.name} cannot be read as JSON"


def read_head(path: Path, size: int = 1000) -> str:
    """The start of a file, or nothing."""
    if not own_file(path):
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""
