"""An average of a network's recent weights."""

import copy
from typing import Any, Generic, TypeVar

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

Network = TypeVar("Network", bound=nn.Module)


class WeightAverage(Generic[Network]):
    """The bias-corrected, exponentially weighted average of a network's parameters (arXiv 2110.00641).

        θ_avg = Σ_k β^k θ_{t−k} / Σ_k β^k

    The parameters it starts from count as one ordinary sample, so early on it is younger than the usual moving average,
    which would give them all the weight that is not yet taken. Its own copy of the network needs no gradient.
    """

    def __init__(self, network: Network) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._weight = 1.0

    @property
    def weight(self) -> float:
        """W = Σ_k β^k, how many samples of full weight the average holds."""
        return self._weight

    @torch.no_grad()
    def step(self, network: Network, decay: float) -> None:
        """W' = βW + 1;  θ_avg ← (βW·θ_avg + θ)/W'.  Buffers are copied: they are averages of their own."""
        # W never exceeds 1/(1 − β) while β stays. When β falls, because the batch grew, more than that would hold on to
        # weights that are now too old, for as many steps as the old β would have kept them.
        if decay < 1.0:
            self._weight = min(self._weight, 1.0 / (1.0 - decay))
        self._weight = decay * self._weight + 1.0
        average = get_ema_multi_avg_fn(1.0 - 1.0 / self._weight)
        average(list(self.network.parameters()), list(network.parameters()), None)
        self.copy_buffers(network)

    @torch.no_grad()
    def copy_buffers(self, network: Network) -> None:
        """Takes over what is not learned, such as the moments of a normaliser."""
        for kept, current in zip(self.network.buffers(), network.buffers(), strict=True):
            kept.copy_(current)

    def reset(self, network: Network) -> None:
        """Forgets everything but the present weights."""
        self.step(network, decay=0.0)

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "weight": self._weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self._weight = float(state["weight"])
