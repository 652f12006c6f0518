"""The numbers of an update at this moment of the run and at this size of the batch."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from swell.invariance import BatchSizes, Rule, Tuned, adjusted


@dataclass(frozen=True)
class Hyperparameters:
    """What was tuned at a reference batch, and which rules carry it to the batch at hand."""

    tuned: Tuned
    reference: BatchSizes
    rules: Collection[Rule]
    """None at all leaves everything as it was tuned."""
    anneal_learning_rate: bool

    def at(self, batch: BatchSizes, progress: float) -> Tuned:
        now = adjusted(self.tuned, self.reference, batch, self.rules)
        return replace(now, learning_rate=now.learning_rate * (1.0 - progress)) if self.anneal_learning_rate else now
