"""Which networks have kernels. Nothing here imports numba until a network is found that may."""

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from torch import nn

from swell.errors import ConfigError
from swell.networks.actor_critics import ActorCritic

if TYPE_CHECKING:
    from swell.kernels.models import CompiledPolicy, CompiledQNetwork

Path = Literal["auto", "autograd", "compiled"]
Model = TypeVar("Model")
PACKAGES = ("numba", "scipy", "threadpoolctl")
"""What the `fast` extra brings."""


def can_compile() -> bool:
    return all(find_spec(package) is not None for package in PACKAGES)


def compiled_threads(asked: int) -> int:
    """How many threads share a gradient step; 0 chooses two where there are two cores, since no more were measured."""
    return asked or min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def q_kernel_of(
    network: nn.Module, flat: nn.Parameter, shape: Sequence[int], dtype: Any, path: Path
) -> "CompiledQNetwork | None":
    """None where autograd is asked for, or serves alone: on a GPU, without numba, for a layer that has no kernel."""

    def make() -> "CompiledQNetwork":
        from swell.kernels.models import CompiledQNetwork

        return CompiledQNetwork(network, flat, shape, np.dtype(dtype))

    return _made(make, flat.device, path)


def policy_kernel_of(
    network: ActorCritic, flat: nn.Parameter, shape: Sequence[int], dtype: Any, sizes: Sequence[int], path: Path
) -> "CompiledPolicy | None":
    """As `q_kernel_of`; `sizes` are those of the choices that an action is made of, empty for continuous ones."""

    def make() -> "CompiledPolicy":
        from swell.kernels.models import CompiledPolicy

        return CompiledPolicy(network, flat, shape, np.dtype(dtype), sizes)

    return _made(make, flat.device, path)


def _made(make: Callable[[], Model], device: torch.device, path: Path) -> Model | None:
    if path == "autograd":
        return None
    if path == "compiled" and not can_compile():
        raise ConfigError('path compiled needs the fast extra: pip install "swell-rl[fast]"')
    model = _tried(make) if device.type == "cpu" and can_compile() else None
    if model is None and path == "compiled":
        raise ConfigError("path compiled is for plain networks on a CPU, and this is none; try --path auto")
    return model


def _tried(make: Callable[[], Model]) -> Model | None:
    from swell.kernels.layout import NotPlainError

    try:
        return make()
    except NotPlainError:
        return None
