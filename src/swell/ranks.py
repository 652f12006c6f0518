"""What several processes of one run tell each other. In a run of one process every verb does nothing.

Process r of W owns the columns [r·n, (r + 1)·n) of the envs, n = N / W. Random numbers are drawn for all N and
each process keeps its own; samples are numbered as one process would number them, and minibatches are made of these
numbers; what is a mean or a sum over a batch is one over all processes. So a run is the same however many
processes share it, but for rounding.

Every verb has to be reached by all processes equally often.
"""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from swell.errors import ConfigError, LostProcessError, OtherProcessError

Value = TypeVar("Value")
LONGEST_WAIT = timedelta(hours=12)
"""For another process that is alive: the first one may evaluate for long. One that died is noticed at once."""


@dataclass(frozen=True)
class Place:
    """Of a process among those of its run, and among those on its machine."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1


_place = Place()


def place() -> Place:
    return _place


def is_alone() -> bool:
    return _place.count == 1


def is_first() -> bool:
    """Whether this is the process that writes files, shows progress and evaluates."""
    return _place.rank == 0


def is_launched() -> bool:
    """Whether this process was started by torchrun, which starts the same command again when one dies."""
    return "TORCHELASTIC_RUN_ID" in os.environ or int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def join() -> Generator[None]:
    """Until it ends, this process is one of those that torchrun or Ray Train has started for a run, if any has."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield
        return
    if not dist.is_available():
        raise ConfigError("this torch has no torch.distributed; run one process, or install another torch")
    made_here = not dist.is_initialized()  # Ray Train has made the group already
    if made_here:
        with _noticing_losses():
            # Of tensors on a GPU through NCCL, of all else through gloo. The NCCL half was never run.
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, timeout=LONGEST_WAIT)
    local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    try:
        with _at(Place(dist.get_rank(), count, *local)):
            yield
            _wait_for_all()
    except Exception as error:
        if getattr(error, "is_everyones", False):
            _wait_for_all()  # or the launcher ends those that still write
        raise
    finally:
        if made_here:
            dist.destroy_process_group()


@contextmanager
def apart() -> Generator[None]:
    """In it this process acts as if it were alone."""
    with _at(Place()):
        yield


@contextmanager
def _at(there: Place) -> Generator[None]:
    global _place
    before, _place = _place, there
    try:
        yield
    finally:
        _place = before


@contextmanager
def _noticing_losses() -> Generator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo has no class of its own for a peer that is gone
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LostProcessError(f"another process of the run is gone: {reason}") from error


def _wait_for_all() -> None:
    with _noticing_losses():
        dist.barrier()


def add_up(numbers: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if not is_alone():
        with _noticing_losses():
            dist.all_reduce(numbers)
    return numbers


def total(count: int) -> int:
    return count if is_alone() else int(add_up(torch.tensor(count)).item())


def largest(*numbers: int) -> list[int]:
    """The largest that any process has of each."""
    if is_alone():
        return list(numbers)
    given = torch.tensor(numbers)
    with _noticing_losses():
        dist.all_reduce(given, dist.ReduceOp.MAX)
    return given.tolist()


def side_by_side(columns: Tensor) -> Tensor:
    """From [T, n, ...] in each process to [T, N, ...] in all."""
    return columns if is_alone() else torch.cat(_gathered(columns), dim=1)


def joined(rows: Tensor) -> Tensor:
    """The rows [k, ...] of all processes, of which each may have another number, in the order of the processes."""
    if is_alone():
        return rows
    counts = [int(count.item()) for count in _gathered(torch.tensor(rows.shape[0]))]
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    return torch.cat([given[:count] for given, count in zip(_gathered(padded), counts, strict=True)])


def _gathered(tensor: Tensor) -> list[Tensor]:
    is_bool = tensor.dtype == torch.bool  # which gloo does not carry
    given = (tensor.to(torch.uint8) if is_bool else tensor).contiguous()
    parts = [torch.empty_like(given) for _ in range(_place.count)]
    with _noticing_losses():
        dist.all_gather(parts, given)
    return [part.bool() for part in parts] if is_bool else parts


def everyones(value: Value) -> list[Value]:
    """Anything small that can be pickled, of each process in turn."""
    if is_alone():
        return [value]
    values: list[Any] = [None] * _place.count
    with _noticing_losses():
        dist.all_gather_object(values, value)
    return values


def first_says(value: Value) -> Value:
    """What the first process has; what the others have does not matter."""
    if is_alone():
        return value
    values = [value]
    with _noticing_losses():
        dist.broadcast_object_list(values, src=0)
    return values[0]


def first_hears(value: Value) -> list[Value] | None:
    """What each process has, in the first; None in the others."""
    if is_alone():
        return [value]
    heard: list[Any] | None = [None] * _place.count if is_first() else None
    with _noticing_losses():
        dist.gather_object(value, heard, dst=0)
    return heard


def dealt(values: Sequence[Value] | None) -> Value:
    """One for each process, from the first."""
    if is_alone():
        assert values is not None
        return values[0]
    received: list[Any] = [None]
    with _noticing_losses():
        dist.scatter_object_list(received, list(values) if values is not None else None, src=0)
    return cast("Value", received[0])


def together(work: Callable[[], Value]) -> Value:
    """What `work` returns, if it ends well in all processes; if not, each of them raises, and one says why.

    `work` must not talk to other processes.
    """
    if is_alone():
        return work()
    result, failure = None, None
    try:
        result = work()
    except Exception as error:
        failure = error
    codes = everyones(None if failure is None else getattr(failure, "exit_code", 1))
    if failure is not None and all(code is None for code in codes[: _place.rank]):
        failure.__dict__["is_everyones"] = True
        raise failure
    if any(code is not None for code in codes):
        raise OtherProcessError(next(code for code in codes if code is not None))
    return cast("Value", result)


def first_does(work: Callable[[], Value]) -> Value:
    """What `work` returns in the first process, where alone it is done."""
    return first_says(together(lambda: work() if is_first() else cast("Value", None)))


def drawn(draw: Callable[[int], Tensor], rows: int, dimension: int = 0) -> Tensor:
    """Random numbers for this process's rows: they are drawn for all, so that all generators stay the same."""
    if is_alone():
        return draw(rows)
    return draw(rows * _place.count).narrow(dimension, rows * _place.rank, rows)


def own_share(count: int, of: str) -> int:
    """This process's part of what is shared out evenly."""
    if count % _place.count:
        raise ConfigError(f"{of} must be divisible by the {_place.count} processes, got {count}")
    return count // _place.count


class Shares:
    """Which samples of a batch are this process's, and in which of its rows they are.

    Samples are numbered over all processes. `rows` [samples] is -1 for those of others; without it all are own, each in
    the row of its number.
    """

    def __init__(self, rows: Tensor | None = None, columns: int = 0) -> None:
        self._rows = rows
        self._columns = columns

    def own(self, samples: Tensor) -> Tensor:
        """The rows of those that are this process's, in order."""
        if self._rows is None:
            return samples
        rows = self._rows[samples]
        return rows[rows >= 0]

    def are_own(self, samples: Tensor) -> Tensor:
        assert self._rows is not None
        return self._rows[samples] >= 0

    def own_of(self, samples: Tensor, values: Tensor) -> Tensor:
        """Of values [B] of these samples [B], those of this process's."""
        return values if self._rows is None else values[self.are_own(samples)]

    def everyones(self, values: Tensor) -> Tensor:
        """From [..., T * n] of this process to [..., T * N] of all, by the numbers of the samples."""
        if self._rows is None:
            return values
        by_time = values.unflatten(-1, (-1, self._columns))
        return torch.cat(_gathered(by_time), dim=-1).flatten(-2)

    def own_losses(self, losses_of_rows: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """From the samples of all processes to the losses of this one's; there may be none."""
        if self._rows is None:
            return losses_of_rows

        def losses(samples: Tensor) -> Tensor:
            rows = self.own(samples)
            return losses_of_rows(rows) if rows.shape[0] else torch.zeros(0, device=rows.device, requires_grad=True)

        return losses


ALL_OWN = Shares()


def shared_samples(valid: Tensor) -> tuple[Tensor, Shares]:
    """Of a rollout [T, n]: the numbers of all real transitions of all processes, and which are this one's."""
    if is_alone():
        return valid.flatten().nonzero().squeeze(1), ALL_OWN
    everywhere = side_by_side(valid)
    rows = torch.full(everywhere.shape, -1, device=valid.device)
    columns = valid.shape[1]
    own = torch.arange(valid.numel(), device=valid.device).view(valid.shape)
    rows[:, _place.rank * columns : (_place.rank + 1) * columns] = own
    return everywhere.flatten().nonzero().squeeze(1), Shares(rows.flatten(), columns)
