"""Named recipes. `swell presets` shows the first line of each, in this order."""

from swell.recipes import pqn, policies  # noqa: I001  # the order of the list
from swell.recipes.registry import PRESETS

__all__ = ["PRESETS", "policies", "pqn"]
