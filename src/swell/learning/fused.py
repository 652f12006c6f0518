"""Passes over a batch in one call of a kernel each. What they do is what the readable objectives do, but for rounding.

Imported only where there is a compiled network: it imports numba.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue
from threading import Event, Thread, enumerate as all_threads
from typing import Any, Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from swell.config.learners import PPOSettings
from swell.kernels import returns as sums_over_time, updates
from swell.kernels.lanes import make_lanes
from swell.kernels.models import CompiledPolicy, CompiledQNetwork, Part
from swell.kernels.updates import Objective, Optimizer, PolicyRows, QRows
from swell.learning.optimize import FlatAdam, StepTaken, require_finite, shuffled
from swell.learning.policy_batch import PolicyBatch

MEANS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
FEWEST_ROWS_OF_A_LANE = 48
"""Of a minibatch, for each thread: with fewer, handing weights and gradients over takes as long as it saves."""


def lambda_returns(rewards: Tensor, discounts: Tensor, next_values: Tensor, traces: Tensor) -> Tensor:
    """As `targets.lambda_returns`."""
    result = torch.empty(rewards.shape)
    given = [numbers.contiguous().numpy() for numbers in (rewards, discounts, next_values, traces)]
    sums_over_time.lambda_returns(given[0], given[1], given[2], given[3], result.numpy())
    return result


def running_sums(rewards: np.ndarray, discounts: np.ndarray, carried: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `advantages.running_sums`."""
    returns = rewards.copy()
    sums_over_time.discounted_returns(returns, discounts, carried)
    return returns, carried


@lru_cache(maxsize=64)
def ends_of(count: int, parts: int) -> np.ndarray:
    """Where the parts end into which `count` is split as evenly as can be, the larger ones first."""
    sizes = np.full(parts, count // parts)
    sizes[: count % parts] += 1
    return np.cumsum(sizes)


class CountsSteps(Protocol):
    """A learner, as a pass sees it."""

    gradient_steps: int


class Helper(Thread):
    """A thread that waits for calls of kernels and makes them one by one; it ends with the process."""

    def __init__(self) -> None:
        super().__init__(name="swell helper", daemon=True)
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self.start()

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """One that has not come to its last call yet is not asked for another: the work is done without it."""
        if self._calls.empty():
            self._calls.put((function, arguments))

    def run(self) -> None:
        while True:
            function, arguments = self._calls.get()
            function(*arguments)
            del function, arguments  # they hold the memory of a batch

    def finish(self) -> None:
        """Waits until all that it was asked for is done."""
        is_done = Event()
        self._calls.put((is_done.set, ()))
        is_done.wait()


def finish_helpers() -> None:
    """Waits for those of all learners."""
    for thread in all_threads():
        if isinstance(thread, Helper):
            thread.finish()


class Crew:
    """The threads of a learner's gradient steps: this one, and helpers that are started when first needed."""

    def __init__(self, part: Part, threads: int) -> None:
        self._part = part
        self._threads = threads if sys.platform != "win32" else 1  # which has no sched_yield
        self._helpers: list[tuple[Helper, Any]] = []
        self._rest = np.array([0, 1])

    def lanes_for(self, rows: int) -> int:
        """Of a minibatch of so many rows. Another number of lanes rounds otherwise, whoever does the work."""
        return max(1, min(self._threads, rows // FEWEST_ROWS_OF_A_LANE))

    def make_lanes(self, count: int, sums: int) -> Any:
        return make_lanes(count, self._part.network.weights.size, sums, self._rest)

    def call(self, lanes: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Has helpers call `function(network, room, …, lane)` for all lanes but the first."""
        while len(self._helpers) < lanes - 1:
            self._helpers.append((Helper(), self._part.make_room(self._part.room.inputs.shape[0])))
        for lane, (helper, room) in enumerate(self._helpers[: lanes - 1], start=1):
            helper.call(function, self._part.network, room, *arguments, lane)


class FusedPasses:
    """What passes of any objective need: the optimizer as a kernel sees it, and the order of the minibatches."""

    def __init__(self, crew: Crew, optimizer: FlatAdam, max_gradient_norm: float | None, generator: Generator) -> None:
        self._crew, self._adam, self._generator = crew, optimizer, generator
        self._optimizer = Optimizer(
            optimizer.mean.detach().numpy(),
            optimizer.square.detach().numpy(),
            np.array(
                [
                    optimizer.learning_rate,
                    *optimizer.betas,
                    optimizer.epsilon,
                    optimizer.steps,
                    optimizer.rectified,
                    np.inf if max_gradient_norm is None else max_gradient_norm,
                ]
            ),
        )

    def run(self, indices: Tensor, minibatches: int, epochs: int, learner: CountsSteps) -> list[StepTaken]:
        """The steps of so many passes; one that is not finite stops the run before it reaches the weights."""
        orders = np.stack([shuffled(indices, minibatches, self._generator).numpy() for _ in range(epochs)])
        ends = ends_of(orders.shape[1], min(minibatches, orders.shape[1]))
        losses, norms = np.empty(epochs * len(ends)), np.empty(epochs * len(ends))
        lanes = self._crew.make_lanes(self._crew.lanes_for(int(ends[0])), updates.SUMS)
        taken = self._call(lanes, orders, ends, losses, norms)
        self._adam.steps = self._optimizer.numbers[updates.STEPS]
        learner.gradient_steps += taken
        if taken < len(losses):
            require_finite(losses[taken], norms[taken])
        return [StepTaken(loss, norm) for loss, norm in zip(losses.tolist(), norms.tolist(), strict=True)]

    def _call(self, lanes: Any, orders: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        raise NotImplementedError


class QPasses(FusedPasses):
    """Those of `PQN.losses`."""

    def __init__(
        self,
        model: CompiledQNetwork,
        states: Tensor,
        actions: Tensor,
        targets: Tensor,
        coefficient: float,
        *optimizer: Any,
    ) -> None:
        super().__init__(*optimizer)
        self._part, self._coefficient = model.part, coefficient
        self._rows = QRows(*model.inputs(states, model.part), actions.numpy(), targets.numpy())

    def _call(self, lanes: Any, orders: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        part = self._part
        head, data = part.heads[0], (self._rows, self._coefficient, lanes, orders, ends)
        self._crew.call(len(lanes.gradients), updates.help_q_passes, head, *data)
        return updates.q_passes(part.network, part.room, head, self._optimizer, *data, losses, norms)


class ClippedPolicyPasses(FusedPasses):
    """Those of `PPO.losses`, on data of the policy itself."""

    def __init__(
        self,
        model: CompiledPolicy,
        batch: PolicyBatch,
        old_log_probs: Tensor,
        advantages: Tensor,
        normalises: bool,
        settings: PPOSettings,
        *optimizer: Any,
    ) -> None:
        super().__init__(*optimizer)
        self._model, self._size = model, batch.size
        self._sums = np.zeros(updates.SUMS)
        count, actions = batch.states.shape[0], batch.actions.contiguous().numpy()
        is_continuous = model.heads.log_std >= 0
        self._rows = PolicyRows(
            *model.inputs(batch.states, model.both),
            choices=np.empty((count, 0), np.int64) if is_continuous else actions.reshape(count, -1),
            points=actions.reshape(count, -1) if is_continuous else np.empty((count, 0), np.float32),
            log_probs=old_log_probs.numpy(),
            values=batch.values.contiguous().numpy(),
            advantages=advantages.numpy(),
            returns=batch.returns.contiguous().numpy(),
        )
        self._objective = Objective(
            settings.clip_range,
            np.inf if settings.value_clip_range is None else settings.value_clip_range,
            settings.value_coefficient,
            settings.entropy_coefficient,
            normalises,
        )

    @property
    def means(self) -> dict[str, float]:
        """Over the samples of the last pass."""
        return dict(zip(MEANS, (self._sums[updates.POLICY_LOSS :] / self._size).tolist(), strict=True))

    def _call(self, lanes: Any, orders: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        part, heads = self._model.both, self._model.heads
        data = (self._rows, self._objective, lanes, orders, ends)
        self._crew.call(len(lanes.gradients), updates.help_policy_passes, heads, *data)
        taken = updates.policy_passes(part.network, part.room, heads, self._optimizer, *data, losses, norms)
        self._sums = lanes.sums[0]
        return taken
