"""Means of per-sample numbers over one update."""

from torch import Tensor


class Tally:
    """Adds up what each minibatch says of its samples; reads nothing back from the device before the end."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, **samples: Tensor) -> None:
        """Each tensor holds one number per sample."""
        for name, values in samples.items():
            total = values.detach().sum()
            self._sums[name] = self._sums[name] + total if name in self._sums else total
            self._counts[name] = self._counts.get(name, 0) + values.numel()

    def mean(self, name: str) -> float:
        return self._sums[name].item() / self._counts[name]

    def means(self) -> dict[str, float]:
        return {name: self.mean(name) for name in self._sums}
