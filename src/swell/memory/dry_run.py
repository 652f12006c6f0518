"""A dry run of one iteration on a few made-up transitions, and the memory that its tensors held.

It runs the code that will train, with a learner and a measurement of its own: nothing of the run is touched, and no
generator of the run is drawn from.
"""

import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from swell.measurement import Measurement
from swell.types import BatchPlan, Learner, Rollout


@dataclass(frozen=True)
class Held:
    """Bytes of tensors that each part of an iteration held, beside what was there before: level after level."""

    learner: list[int]
    """Weights, gradients and the state of the optimizer."""
    rollout: list[int]
    acting: list[int]
    measuring: list[int]
    kept: list[int]
    """What a measurement keeps from before the update until after it."""
    updating: list[int]
    lasting: list[int]
    """What the first update leaves for good, such as the phase of PPG."""
    saved: list[int]
    """What a checkpoint stores of the learner."""


def dry_run(make_parts: Callable[[], tuple[Learner, Measurement]], observations: Tensor, samples: int) -> Held:
    """One iteration on `observations` [T + 1, N, ...], in gradient steps of so many samples."""
    horizon, num_envs = observations.shape[0] - 1, observations.shape[1]
    plan = BatchPlan(horizon, epochs=1, minibatches=horizon * num_envs // samples)
    with LiveTensors() as tensors:
        learner, measurement = make_parts()
        made = tensors.bytes
        with tensors.levels() as acting:
            actions, recorded = learner.act(observations[0], 0.0)
        rollout = made_up_rollout(observations, actions, recorded)
        del actions, recorded
        before = tensors.bytes
        learner.update(rollout, plan, 0.0)
        after = tensors.bytes
        with tensors.levels() as measuring:
            before_update = measurement.observe(learner, rollout)
        kept = tensors.bytes - after
        del before_update
        with tensors.levels() as updating:
            learner.update(rollout, plan, 0.0)
    return Held(
        learner=[made],
        rollout=[_bytes_in(vars(rollout))],
        acting=acting,
        measuring=measuring,
        kept=[kept],
        updating=updating,
        lasting=[after - before],
        saved=[_bytes_in(learner.state_dict())],
    )


def made_up_rollout(observations: Tensor, actions: Tensor, recorded: Mapping[str, Tensor]) -> Rollout:
    """A rollout without rewards and ends, in which each step is like the first.

    One row is no transition, since leaving rows out takes copies that a rollout without such rows does not.
    """
    horizon, num_envs = observations.shape[0] - 1, observations.shape[1]
    device = observations.device
    never = torch.zeros((horizon, num_envs), dtype=torch.bool, device=device)
    valid = ~never
    valid[-1, -1] = False
    return Rollout(
        observations=observations,
        actions=torch.stack([actions] * horizon),
        rewards=torch.zeros((horizon, num_envs), device=device),
        terminated=never,
        truncated=never.clone(),
        valid=valid,
        final_observations=observations[:0, 0],
        final_indices=torch.zeros(0, dtype=torch.long, device=device),
        recorded={name: torch.stack([row] * horizon) for name, row in recorded.items()},
    )


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of all tensors that were made while it was on and are still alive.

    It sees what every operation returns, in the backward pass too. What an operation allocates for itself and
    frees before it returns is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._levels: list[int] = []
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    @contextmanager
    def levels(self) -> Generator[list[int]]:
        """The count after each new tensor, beside what it was at the start."""
        before = self.bytes
        self._levels = []
        found = [0]
        yield found
        found += [level - before for level in self._levels]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it, torch would first import it, and that takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        given = [tensor.untyped_storage() for tensor in _tensors_in(args)]  # it may write to them or return views
        for tensor in _tensors_in((output,)):
            storage = tensor.untyped_storage()
            if id(storage) not in self._alive and not any(storage is own for own in given):
                self._watch(storage)
        return output

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def forget(_: object) -> None:
            del self._alive[key]
            self.bytes -= size

        self._alive[key] = weakref.ref(storage, forget)
        self.bytes += size
        self._levels.append(self.bytes)


def _tensors_in(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors_in(value)


def _bytes_in(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.nbytes
    if isinstance(state, Mapping):
        return sum(_bytes_in(value) for value in cast("Mapping[Any, Any]", state).values())
    return sum(map(_bytes_in, cast("list[Any]", state))) if isinstance(state, list | tuple) else 0
