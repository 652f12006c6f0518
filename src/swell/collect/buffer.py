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
    """Room for `max_horizon` steps of all envs, filled step by step: first what they do, then what comes back.

    Views of single rows are made beforehand, because to index a tensor takes longer than to copy a small row.
    """

    def __init__(self, max_horizon: int, observations: np.ndarray, device: torch.device) -> None:
        row = torch.from_numpy(observations)
        self.filled = 0
        self._device = device
        self._shape = (max_horizon, row.shape[0])
        self._observations = torch.empty((max_horizon + 1, *row.shape), dtype=row.dtype, device=device)
        self._observation_rows = self._observations.unbind()
        self._fields: dict[str, Tensor] = {}
        self._staged: list[tuple[Staging, Tensor]] = []
        self._recorded: dict[str, Tensor] = {}
        self._recorded_rows: dict[str, Sequence[Tensor]] = {}
        self._finals: list[np.ndarray] = []
        self._final_indices: list[np.ndarray] = []
        self._rewards = self._field("rewards", torch.float32)
        self._terminated = self._field("terminated", torch.bool)
        self._truncated = self._field("truncated", torch.bool)
        self._valid = self._field("valid", torch.bool)
        self._actions: np.ndarray | None = None
        on_host = is_host(device)
        self._staging = None if on_host else Staging(row.shape, row.dtype, device)
        self._observation_arrays = [row.numpy() for row in self._observation_rows] if on_host else []
        self.start_from(row)

    @property
    def observations(self) -> Tensor:
        """What the envs show now: [N, ...]."""
        return self._observation_rows[self.filled]

    @property
    def states(self) -> Tensor:
        """What was acted on so far: [T, N, ...]."""
        return self._observations[: self.filled]

    def start(self) -> None:
        """Makes room for the next rollout, which starts from the last observations of the one before."""
        self.start_from(self.observations)

    def start_from(self, observations: Tensor) -> None:
        """Makes room for the next rollout, which starts from these observations."""
        for staging, _ in self._staged:
            staging.wait()
        self._finals.clear()
        self._final_indices.clear()
        self._observation_rows[0].copy_(observations)
        self.filled = 0

    @property
    def is_on_host(self) -> bool:
        """Whether what is written here is the rollout itself, with nothing to send on."""
        return self._staging is None

    @property
    def observation_array(self) -> np.ndarray:
        """What the envs show now, as an array of the host's memory; for buffers that are there."""
        return self._observation_arrays[self.filled]

    def record(self, recorded: Mapping[str, Tensor]) -> None:
        """What the learner noted beside the actions of this step."""
        for name, row in recorded.items():
            if name not in self._recorded:
                self._make_room_to_record(name, row)
            self._recorded_rows[name][self.filled].copy_(row)

    def add(self, actions: np.ndarray, result: EnvStep) -> None:
        """One step of all envs: what they did, and what came back."""
        step = self.filled
        if self._actions is None:
            self._actions = self._field("actions", torch.from_numpy(actions).dtype, actions.shape[1:])
        self._actions[step] = actions
        self._rewards[step] = result.rewards
        self._terminated[step] = result.terminated
        self._truncated[step] = result.truncated
        self._valid[step] = result.valid
        if result.final_observations is not None and np.count_nonzero(result.truncated):
            envs = np.flatnonzero(result.truncated)
            self._finals.append(result.final_observations[envs])
            self._final_indices.append(step * self._shape[1] + envs)
        self.filled = step + 1
        if self._staging is None:
            self._observation_arrays[self.filled][:] = result.observations
        else:
            self._staging.wait()
            self._staging.array[:] = result.observations
            self._staging.send(self.observations)

    def arrays(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Memory for who fills it without `add`: observations, rewards, terminated, truncated; all rows are valid.

        `actions` [T, N, ...] are theirs too, and become the rollout's.
        """
        self._fields["actions"] = torch.from_numpy(actions)
        self._valid[:] = True
        return self._observations.numpy(), self._rewards, self._terminated, self._truncated

    def filled_by_itself(self, steps: int, finals: np.ndarray, indices: np.ndarray) -> None:
        """That so many rows were written, with the last observations of episodes that were cut off in them."""
        self.filled = steps
        if len(finals):
            self._finals.append(finals)
            self._final_indices.append(indices)

    def rollout(self, recorded: Mapping[str, Tensor] | None = None) -> Rollout:
        """What was added since `start`: views of memory that the next rollout overwrites.

        `recorded` is what an actor noted itself, for the longest rollout, instead of `record`.
        """
        horizon = self.filled
        for staging, field in self._staged:
            staging.send(field[:horizon])
        finals = torch.from_numpy(np.concatenate(self._finals)) if self._finals else self._observations[:0, 0]
        indices = np.concatenate([np.empty(0, dtype=np.int64), *self._final_indices])
        return Rollout(
            observations=self._observations[: horizon + 1],
            **{name: field[:horizon] for name, field in self._fields.items()},
            final_observations=finals.to(self._device),
            final_indices=torch.from_numpy(indices).to(self._device),
            recorded={name: rows[:horizon] for name, rows in (recorded or self._recorded).items()},
        )

    def _field(self, name: str, dtype: torch.dtype, shape: Sequence[int] = ()) -> np.ndarray:
        """[T, N, *shape] of the host, in which to write what will be the rollout's field of this name."""
        field = torch.empty((*self._shape, *shape), dtype=dtype, device=self._device)
        self._fields[name] = field
        if is_host(self._device):
            return field.numpy()
        staging = Staging(field.shape, dtype, self._device)
        self._staged.append((staging, field))
        return staging.array

    def _make_room_to_record(self, name: str, row: Tensor) -> None:
        self._recorded[name] = torch.empty((*self._shape, *row.shape[1:]), dtype=row.dtype, device=self._device)
        self._recorded_rows[name] = self._recorded[name].unbind()


def is_host(device: torch.device) -> bool:
    """Whether envs can write to this device's memory."""
    return device.type == "cpu"


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
