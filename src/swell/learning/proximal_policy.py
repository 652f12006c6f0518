"""The proximal policy: an average of recent weights, and the objective that stays near it (arXiv 2110.00641).

One old policy corrects for the data, another is the one to stay near: the decoupled objective.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from swell.config.learners import DecoupledSettings
from swell.learning.advantages import AdvantageMoments
from swell.learning.distributions import ActionKind
from swell.learning.losses import decoupled_clip, distance, squared_log_ratio
from swell.learning.optimize import SampleMeans, flat_parameters
from swell.learning.policy_batch import PolicyBatch
from swell.networks.actor_critics import ActorCritic

Network = TypeVar("Network", bound=nn.Module)


class WeightAverage(Generic[Network]):
    """The bias-corrected, exponentially weighted average of a network's parameters (arXiv 2110.00641).

        θ_avg = Σ_k β^k θ_{t−k} / Σ_k β^k

    The parameters it starts from count as one ordinary sample, so early on it is younger than the usual moving average,
    which would give them all the weight that is not yet taken. Its own copy of the network needs no gradient; passes
    go through `model`, which is a kernel for the copy where there is one.
    """

    def __init__(self, network: Network, kernel_of: Callable[[Network, nn.Parameter], Any] | None = None) -> None:
        self.network = copy.deepcopy(network)
        flat = flat_parameters(self.network)
        self.model = (kernel_of and kernel_of(self.network, flat)) or self.network
        self.network.requires_grad_(False)
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


ProximalLogProbs = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Log-probabilities of the policy to stay near, from the chosen rows of a batch, their states and their actions."""


@torch.no_grad()
def averaged_log_probs(
    average: WeightAverage[ActorCritic], kind: ActionKind, chosen: Tensor, states: Tensor, actions: Tensor
) -> Tensor:
    """Those of the policy of averaged weights, as it is when it is asked."""
    return kind.distribution(average.model.policy(states)).log_prob(actions)


def moment_normalized(
    batch: PolicyBatch, settings: DecoupledSettings, moments: AdvantageMoments, decay: float
) -> Tensor:
    """The advantages of the decoupled objective: normalised by the moments of recent batches, or as they are."""
    if settings.advantage_norm == "none":
        return batch.advantages
    return batch.rescaled_advantages(partial(moments.normalize, decay=decay))


def decoupled_losses(
    network: Callable[[Tensor], tuple[Tensor, Tensor]],
    kind: ActionKind,
    batch: PolicyBatch,
    advantages: Tensor,
    behavior: Tensor,
    proximal: ProximalLogProbs,
    settings: DecoupledSettings,
    means: SampleMeans,
    chosen: Tensor,
) -> Tensor:
    """Clip or penalty around the proximal policy, value and entropy, [B]; `behavior` are log-probs of all rows."""
    states, actions = batch.states[chosen], batch.actions[chosen]
    parameters, values = network(states)
    near = proximal(chosen, states, actions)
    distribution = kind.distribution(parameters)
    log_probs, entropy = distribution.log_prob(actions), distribution.entropy()
    policy_loss = decoupled_clip(log_probs, near, behavior[chosen], advantages[chosen], settings.clip_range)
    value_loss = batch.value_losses(values, chosen, settings.value_clip_range)
    away = distance(log_probs, near, settings.clip_range)
    means.add(policy_loss=policy_loss, value_loss=value_loss, entropy=entropy, **away)
    return (
        policy_loss
        + settings.kl_penalty * squared_log_ratio(log_probs, near)
        + settings.value_coefficient * value_loss
        - settings.entropy_coefficient * entropy
    )
