"""The journeys: every command on their pages is run, one after the other, and says what the page says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("journey-*.md"))
SHORT = {"50000": "1000", "60000": "1200", "20000": "1000", "22000": "1200"}
"""Env steps on a page, and in the test."""


def commands_of(page):
    """Each command with the lines that it should print."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        for part in block.split("$ ")[1:]:
            command, *expected = part.strip().splitlines()
            yield command, expected


def arguments_of(command):
    words = [SHORT.get(word, word) for word in shlex.split(command)]
    return [sys.executable, *({"swell": ["-m", "swell"], "python": []}[words[0]]), *words[1:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_journey_do_what_its_page_says(page, tmp_path):
    for name, source in re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(source)
    environment = {**os.environ, "SDL_VIDEODRIVER": "dummy", "COLUMNS": "200"}
    commands = list(commands_of(page))
    assert commands
    for command, expected in commands:
        done = subprocess.run(
            arguments_of(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
        )
        printed = done.stdout + done.stderr
        fails = any(line.startswith("swell") for line in expected)
        assert (done.returncode != 0) == fails, f"{command}: {printed}"
        assert all(line in printed for line in expected), f"{command}: {printed}"
        assert not command.startswith("swell") or "Traceback" not in printed, printed


def test_there_are_five_journeys():
    assert len(PAGES) == 5
