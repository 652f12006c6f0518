"""Faults put into real commands, and what each led to: `python -m tests.faults`, or `make test-faults`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
