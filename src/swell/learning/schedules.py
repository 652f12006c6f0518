"""Functions of progress in [0, 1], and a counter that notices when a boundary was crossed."""

from typing import Any


def linear(start: float, end: float, fraction: float, progress: float) -> float:
    """Goes from `start` to `end` over the first `fraction` of the run, then stays."""
    if fraction <= 0.0 or progress >= fraction:
        return end
    return start + (end - start) * (progress / fraction)


class Every:
    """True once for each multiple of `interval` that a growing count reaches or passes.

    A batch that changes its size steps over most multiples, so `count % interval == 0` would miss them.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self._passed = 0

    def is_due(self, count: int) -> bool:
        """Whether `crossed` would be true, which this leaves as it is."""
        return count // self.interval > self._passed

    def crossed(self, count: int) -> bool:
        is_new = self.is_due(count)
        self._passed = max(count // self.interval, self._passed)
        return is_new

    def state_dict(self) -> dict[str, Any]:
        return {"passed": self._passed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._passed = int(state["passed"])
