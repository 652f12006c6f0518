"""Memory for one rollout, allocated once for the longest and sliced.

What the envs return is written into arrays of the host. On the CPU these arrays are the rollout's own memory. For any
other device they are staging memory: observations are sent on step by step, the rest once per rollout.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from swell.envs.contract import EnvStep
from swell.types import Rollout


class RolloutBuffer:
    """Room for `max_horizon` steps of all envs, to be filled by a `GroupRows` for each group of them."""

    def __init__(self, max_horizon: int, observations: np.ndarray, device: torch.device) -> None:
        row = torch.from_numpy(observations)
        self.device = device
        self.observations = torch.empty((max_horizon + 1, *row.shape), dtype=row.dtype, device=device)
        self._shape = (max_horizon, row.shape[0])
        self._fields: dict[str, Tensor] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._staged: list[tuple[Staging, Tensor]] = []
        self._recorded: dict[str, Tensor] = {}
        self._finals: list[np.ndarray] = []
        self._final_indices: list[np.ndarray] = []

    def start(self) -> None:
        """Makes room for the next rollout."""
        for staging, _ in self._staged:
            staging.wait()
        self._finals.clear()
        self._final_indices.clear()

    def rollout(self, horizon: int) -> Rollout:
        """What was filled in since `start`: views of memory that the next rollout overwrites."""
        for staging, field in self._staged:
            staging.send(field[:horizon])
        finals = torch.from_numpy(np.concatenate(self._finals)) if self._finals else self.observations[:0, 0]
        indices = np.concatenate([np.empty(0, dtype=np.int64), *self._final_indices])
        return Rollout(
            observations=self.observations[: horizon + 1],
            **{name: field[:horizon] for name, field in self._fields.items()},
            final_observations=finals.to(self.device),
            final_indices=torch.from_numpy(indices).to(self.device),
            recorded={name: rows[:horizon] for name, rows in self._recorded.items()},
        )

    def array(self, name: str, dtype: torch.dtype, shape: Sequence[int] = ()) -> np.ndarray:
        """[T, N, *shape] of the host, in which to write what will be the rollout's field of this name."""
        if name not in self._fields:
            field = torch.empty((*self._shape, *shape), dtype=dtype, device=self.device)
            staging = None if is_host(self.device) else Staging(field.shape, dtype, self.device)
            if staging is not None:
                self._staged.append((staging, field))
            self._fields[name] = field
            self._arrays[name] = field.numpy() if staging is None else staging.array
        return self._arrays[name]

    def recorded(self, name: str, row: Tensor) -> Tensor:
        """[T, N, ...] of the device, for what the learner records; `row` is an example."""
        if name not in self._recorded:
            shape = (*self._shape, *row.shape[1:])
            self._recorded[name] = torch.empty(shape, dtype=row.dtype, device=self.device)
        return self._recorded[name]

    def add_finals(self, step: int, first_env: int, envs: np.ndarray, observations: np.ndarray) -> None:
        """Keeps the last observations of these envs of a group, whose episodes a time limit ended."""
        self._finals.append(observations[envs])
        self._final_indices.append(step * self._shape[1] + first_env + envs)


class GroupRows:
    """One group's columns of a buffer, filled step by step: first what it does, then what comes back.

    Views of single rows are made beforehand, because to index a tensor takes longer than to copy a small row.
    """

    def __init__(self, buffer: RolloutBuffer, columns: slice) -> None:
        self.filled = 0
        self._buffer = buffer
        self._columns = columns
        self._observation_rows = buffer.observations[:, columns].unbind()
        self._rewards = buffer.array("rewards", torch.float32)[:, columns]
        self._terminated = buffer.array("terminated", torch.bool)[:, columns]
        self._truncated = buffer.array("truncated", torch.bool)[:, columns]
        self._valid = buffer.array("valid", torch.bool)[:, columns]
        self._actions: np.ndarray | None = None
        self._recorded: dict[str, Sequence[Tensor]] = {}
        row, on_host = self.observations, is_host(buffer.device)
        self._staging = None if on_host else Staging(row.shape, row.dtype, buffer.device)
        self._observation_arrays = [row.numpy() for row in self._observation_rows] if on_host else []

    @property
    def observations(self) -> Tensor:
        """What the group acts on next."""
        return self._observation_rows[self.filled]

    def start(self) -> None:
        """The next rollout starts from the last observations of the one before."""
        self.start_from(self.observations)

    def start_from(self, observations: Tensor) -> None:
        """The next rollout starts from these observations."""
        self._observation_rows[0].copy_(observations)
        self.filled = 0

    def add_actions(self, actions: np.ndarray, recorded: Mapping[str, Tensor]) -> None:
        if self._actions is None:
            dtype = torch.from_numpy(actions).dtype
            self._actions = self._buffer.array("actions", dtype, actions.shape[1:])[:, self._columns]
        self._actions[self.filled] = actions
        for name, row in recorded.items():
            if name not in self._recorded:
                self._recorded[name] = self._buffer.recorded(name, row)[:, self._columns].unbind()
            self._recorded[name][self.filled].copy_(row)

    def add_result(self, result: EnvStep) -> None:
        step = self.filled
        self._rewards[step] = result.rewards
        self._terminated[step] = result.terminated
        self._truncated[step] = result.truncated
        self._valid[step] = result.valid
        if result.final_observations is not None and np.count_nonzero(result.truncated):
            envs = np.flatnonzero(result.truncated)
            self._buffer.add_finals(step, self._columns.start, envs, result.final_observations)
        self.filled = step + 1
        self._show(result.observations)

    def _show(self, observations: np.ndarray) -> None:
        if self._staging is None:
            self._observation_arrays[self.filled][:] = observations
        else:
            self._staging.wait()
            self._staging.array[:] = observations
            self._staging.send(self.observations)


class Staging:
    """Memory of the host that is sent to a device.

    For CUDA it is pinned, so sending does not block, and who writes into it again has to `wait` for the copy first.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        self._tensor = torch.empty(tuple(shape), dtype=dtype, pin_memory=is_cuda)
        self._sent = torch.cuda.Event() if is_cuda else None
        self.array: np.ndarray = self._tensor.numpy()

    def send(self, target: Tensor) -> None:
        """Copies the first rows, as many as the target has."""
        target.copy_(self._tensor[: target.shape[0]], non_blocking=self._sent is not None)
        if self._sent is not None:
            self._sent.record()

    def wait(self) -> None:
        if self._sent is not None:
            self._sent.synchronize()


def is_host(device: torch.device) -> bool:
    return device.type == "cpu"
