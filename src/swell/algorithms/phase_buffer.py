"""What a phase of PPG remembers: every state, in the env's own dtype, and its return."""

from typing import Any

import torch
from torch import Tensor


class PhaseBuffer:
    """Rows that are added until the phase ends. Bytes stay bytes: a phase may hold millions of pictures.

    It lives on the CPU, and is allocated once for the expected number of rows; a batch that overshoots makes it grow.
    """

    def __init__(self, expected_rows: int) -> None:
        self._expected_rows = expected_rows
        self._states: Tensor | None = None
        self._returns = torch.empty(0)
        self._rows = 0

    @property
    def states(self) -> Tensor:
        return torch.empty(0) if self._states is None else self._states[: self._rows]

    @property
    def returns(self) -> Tensor:
        return self._returns[: self._rows]

    def add(self, states: Tensor, returns: Tensor) -> None:
        end = self._rows + returns.shape[0]
        if self._states is None or end > self._states.shape[0]:
            self._make_room(states, max(end, self._expected_rows))
        assert self._states is not None
        self._states[self._rows : end] = states
        self._returns[self._rows : end] = returns
        self._rows = end

    def clear(self) -> None:
        self._rows = 0

    def _make_room(self, like: Tensor, rows: int) -> None:
        states = torch.empty((rows, *like.shape[1:]), dtype=like.dtype)
        returns = torch.empty(rows)
        if self._states is not None:
            states[: self._rows] = self.states
            returns[: self._rows] = self.returns
        self._states, self._returns = states, returns

    def state_dict(self) -> dict[str, Any]:
        return {"states": self.states, "returns": self.returns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._states, self._rows = None, 0
        if state["returns"].shape[0]:
            self.add(state["states"].cpu(), state["returns"].cpu())
