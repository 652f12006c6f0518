"""What the machine can do: the envs alone, a large matrix product, and the arithmetic that a step needs."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch.utils.flop_counter import FlopCounterMode

from swell.config.run_config import RunConfig
from swell.envs import VectorEnv, make_envs
from swell.runs.build import build

from .sides import IteratedSide

MATRIX_SIZE = 2048


class EnvsAlone(IteratedSide):
    """The envs of a run, with random actions and nobody who learns."""

    def __init__(self, config: RunConfig) -> None:
        self._envs = make_envs(config, seed=1)
        self._envs.reset()
        self._actions = random_actions(self._envs)

    def iterate(self) -> float:
        return float(self._envs.step(next(self._actions)).valid.sum())


def random_actions(envs: VectorEnv) -> Iterator[np.ndarray]:
    """Drawn beforehand and repeated, so that drawing costs nothing."""
    generator, space, count = np.random.default_rng(1), envs.action_space, envs.num_envs
    if isinstance(space, Discrete):
        return cycle(list(generator.integers(int(space.n), size=(256, count))))
    if isinstance(space, Box):
        rows = generator.uniform(space.low, space.high, size=(256, count, *space.shape))
        return cycle(list(rows.astype(np.float32)))
    raise TypeError(f"random actions are for Discrete and Box, got {space}")


class MatrixProducts(IteratedSide):
    """Products of two large float32 matrices: the most arithmetic that torch gets out of so many threads."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self.threads = threads
        self._left, self._right, self._product = (torch.randn(MATRIX_SIZE, MATRIX_SIZE) for _ in range(3))

    def iterate(self) -> float:
        torch.mm(self._left, self._right, out=self._product)
        return 2.0 * MATRIX_SIZE**3


def flops_per_step(config: RunConfig) -> float:
    """Floating-point operations for each env step: one forward pass to act, one forward and backward pass an epoch.

    Two for each multiply-add of dense layers and convolutions, and no more than is needed: no gradient with respect to
    observations, nothing for norms and activations, nothing for the values at the end of a rollout.
    """
    envs = make_envs(config, num_envs=1, seed=1)
    observations = torch.from_numpy(envs.reset())
    envs.close()
    network = build(replace(config, num_envs=1, horizon=1, scaler="fixed")).learner.network
    with FlopCounterMode(display=False) as acting, torch.no_grad():
        network(observations)
    with FlopCounterMode(display=False) as training:
        total(network(observations)).backward()
    return acting.get_total_flops() + config.epochs * training.get_total_flops()


def total(outputs: Any) -> torch.Tensor:
    """The sum of all that a network says, so that every parameter has a gradient."""
    return outputs.sum() if isinstance(outputs, torch.Tensor) else torch.stack([part.sum() for part in outputs]).sum()
