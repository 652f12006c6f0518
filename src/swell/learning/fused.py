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

from swell.config.learners import PPOSettings, ReturnSettings
from swell.kernels import halves, returns as sums_over_time, updates
from swell.kernels.adam import STEPS, Optimizer
from swell.kernels.halves import Half, make_meeting
from swell.kernels.lanes import Lanes, make_lanes
from swell.kernels.layers import Room
from swell.kernels.models import CompiledPolicy, CompiledQNetwork, Part
from swell.kernels.objectives import POLICY_LOSS, SUMS, Heads, Objective, PolicyRows, QRows
from swell.learning.optimize import FlatAdam, StepTaken, require_finite, shuffled
from swell.learning.policy_batch import PolicyBatch
from swell.types import Rollout

MEANS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
FEWEST_ROWS_OF_A_LANE = 48
"""Of a minibatch, for each thread: with fewer, handing weights and gradients over takes as long as it saves."""
FEWEST_ROWS_OF_HALVES = 16
"""Of a minibatch whose policy and values are two threads' work: all that is handed over is a norm."""


def bootstrapped_returns(
    rollout: Rollout,
    rewards: Tensor,
    values: Tensor,
    last_values: Tensor,
    final_values: Tensor,
    settings: ReturnSettings,
) -> Tensor:
    """As in `targets`."""
    result = torch.empty(rewards.shape)
    sums_over_time.rollout_returns(
        rewards.contiguous().numpy(),
        values.contiguous().numpy(),
        last_values.contiguous().numpy(),
        rollout.terminated.numpy(),
        rollout.truncated.numpy(),
        final_values.contiguous().numpy(),
        rollout.final_indices.numpy(),
        settings.discount,
        settings.trace_decay,
        settings.truncation_is_termination,
        result.numpy(),
    )
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
        """`part` is what a helper passes through."""
        self._part = part
        self.threads = threads if sys.platform != "win32" else 1  # which has no sched_yield
        self._helpers: list[tuple[int, Helper, Room]] = []
        self.rest = np.array([0, 1])
        """As in `Lanes`."""

    def lanes_for(self, rows: int) -> int:
        """Of a minibatch of so many rows. Another number of lanes rounds otherwise, whoever does the work."""
        return max(1, min(self.threads, rows // FEWEST_ROWS_OF_A_LANE))

    def helpers(self, count: int) -> list[tuple[int, Helper, Room]]:
        """So many of them, each with the number of its lane and room for a pass."""
        while len(self._helpers) < count:
            room = self._part.make_room(self._part.room.inputs.shape[0])
            self._helpers.append((len(self._helpers) + 1, Helper(), room))
        return self._helpers[:count]


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
        orders = shuffled(indices, minibatches, epochs, self._generator).numpy()
        ends = ends_of(orders.shape[1], min(minibatches, orders.shape[1]))
        losses, norms = np.empty(epochs * len(ends)), np.empty(epochs * len(ends))
        taken = self._call(orders, ends, losses, norms)
        self._adam.steps = self._optimizer.numbers[STEPS]
        learner.gradient_steps += taken
        if taken < len(losses):
            require_finite(losses[taken], norms[taken])
        return list(map(StepTaken, losses.tolist(), norms.tolist()))

    def _call(self, orders: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        raise NotImplementedError

    def _lanes(self, ends: np.ndarray) -> Lanes:
        size = self._optimizer.mean.size
        return make_lanes(self._crew.lanes_for(int(ends[0])), size, SUMS, self._crew.rest)


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

    def _call(self, orders: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        part, lanes = self._part, self._lanes(ends)
        head, data = part.heads[0], (self._rows, self._coefficient, lanes, orders, ends)
        for lane, helper, room in self._crew.helpers(len(lanes.gradients) - 1):
            helper.call(updates.help_q_passes, part.network, room, head, *data, lane)
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
        self._sums = np.zeros(SUMS)
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
        return dict(zip(MEANS, (self._sums[POLICY_LOSS:] / self._size).tolist(), strict=True))

    def _call(self, orders: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        call = self._call_halves if self._model.is_dual else self._call_lanes
        return call(orders, ends, losses, norms)

    def _call_lanes(self, orders: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        part, heads, lanes = self._model.both, self._model.heads, self._lanes(ends)
        data = (self._rows, self._objective, lanes, orders, ends)
        for lane, helper, room in self._crew.helpers(len(lanes.gradients) - 1):
            helper.call(updates.help_policy_passes, part.network, room, heads, *data, lane)
        taken = updates.policy_passes(part.network, part.room, heads, self._optimizer, *data, losses, norms)
        self._sums = lanes.sums[0]
        return taken

    def _call_halves(self, orders: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        model, rest = self._model, self._crew.rest
        policy, value = model.policy_part, model.value_part
        threads = min(2, self._crew.threads) if ends[0] >= FEWEST_ROWS_OF_HALVES else 1
        meeting = make_meeting(self._optimizer.mean.size, len(losses), rest)
        data = (self._optimizer, self._rows, self._objective, meeting, orders, ends)
        for _, helper, room in self._crew.helpers(threads - 1):
            helper.call(halves.help_dual_passes, half_of(model, value), room, *data)
        ours = (half_of(model, policy), half_of(model, value), policy.room, value.room)
        taken = halves.dual_passes(*ours, *data, threads, losses, norms)
        self._sums = meeting.sums[0]
        return taken


def half_of(model: CompiledPolicy, part: Part) -> Half:
    """The policy or the values of a model in which they share nothing."""
    places, heads = part.places, Heads(part.heads[0], part.heads[0], model.heads.log_std, model.heads.sizes)
    if part is model.policy_part and heads.log_std >= 0:
        places = np.append(places, [[heads.log_std, heads.log_std + part.widths[0]]], axis=0)
    return Half(part.network, heads, places)
