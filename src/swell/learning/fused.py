"""Passes over a batch in one call of a kernel each. What they do is what the readable objectives do, but for rounding.

Imported only where there is a compiled network: it imports numba.
"""

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from swell.config.learners import PPOSettings
from swell.kernels import returns as sums_over_time, updates
from swell.kernels.models import CompiledPolicy, CompiledQNetwork
from swell.kernels.updates import Objective, Optimizer, PolicyRows, QRows
from swell.learning.optimize import FlatAdam, StepTaken, require_finite, shuffled
from swell.learning.policy_batch import PolicyBatch

MEANS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


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


class FusedPass:
    """What a pass of any objective needs: the optimizer as a kernel sees it, and the order of the minibatches."""

    def __init__(self, optimizer: FlatAdam, max_gradient_norm: float | None, generator: Generator) -> None:
        self._adam = optimizer
        self._generator = generator
        self._optimizer = Optimizer(
            np.empty(optimizer.flat.numel(), np.float32),
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

    def run(self, indices: Tensor, minibatches: int, learner: CountsSteps) -> list[StepTaken]:
        """The steps of one pass; one that is not finite stops the run before it reaches the weights."""
        order = shuffled(indices, minibatches, self._generator).numpy()
        ends = ends_of(len(order), min(minibatches, len(order)))
        losses, norms = np.empty(len(ends)), np.empty(len(ends))
        taken = self._call(order, ends, losses, norms)
        self._adam.steps = self._optimizer.numbers[updates.STEPS]
        learner.gradient_steps += taken
        if taken < len(ends):
            require_finite(losses[taken], norms[taken])
        return [StepTaken(loss, norm) for loss, norm in zip(losses.tolist(), norms.tolist(), strict=True)]

    def _call(self, order: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        raise NotImplementedError


class QPass(FusedPass):
    """That of `PQN.losses`."""

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

    def _call(self, order: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        part = self._part
        fixed = (part.network, part.room, part.heads[0], self._optimizer, self._rows, self._coefficient)
        return updates.q_epoch(*fixed, order, ends, losses, norms)


class ClippedPolicyPass(FusedPass):
    """That of `PPO.losses`, on data of the policy itself."""

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
        return dict(zip(MEANS, (self._sums / self._size).tolist(), strict=True))

    def _call(self, order: np.ndarray, ends: np.ndarray, losses: np.ndarray, norms: np.ndarray) -> int:
        part, heads = self._model.both, self._model.heads
        fixed = (part.network, part.room, heads, self._optimizer, self._rows, self._objective)
        return updates.policy_epoch(*fixed, order, ends, losses, norms, self._sums)
