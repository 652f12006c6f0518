"""The actions of every unfinished game, kept so that the games can be played again."""

import numpy as np


class ActionLog:
    """A ring of the newest actions of all envs; it doubles when the longest unfinished game no longer fits."""

    def __init__(self, num_envs: int) -> None:
        self.lengths = np.zeros(num_envs, dtype=np.int64)
        """Steps taken in each env's unfinished game."""
        self._ring = np.zeros((256, num_envs), dtype=np.uint8)
        self._next = 0

    def append(self, actions: np.ndarray) -> None:
        longest = int(self.lengths.max())
        if longest == len(self._ring):
            self._ring = np.concatenate([self.rows(), np.zeros_like(self._ring)])
            self._next = longest
        self._ring[self._next % len(self._ring)] = actions
        self._next += 1
        self.lengths += 1

    def forget(self, ended: np.ndarray) -> None:
        """Drops the games of these envs; their next actions belong to new ones."""
        self.lengths[ended] = 0

    def rows(self) -> np.ndarray:
        """[steps, num_envs], oldest first, from the start of the longest game on."""
        newest = np.arange(self._next - int(self.lengths.max()), self._next)
        return self._ring[newest % len(self._ring)]
