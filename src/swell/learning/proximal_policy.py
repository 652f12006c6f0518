"""The decoupled objective (arXiv 2110.00641): one old policy corrects for the data, another is the one to stay near."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from swell.learning.actor import Actor
from swell.learning.losses import decoupled_clip, squared_log_ratio
from swell.learning.policy_batch import PolicyBatch
from swell.learning.policy_learner import distance
from swell.learning.tally import Tally
from swell.learning.weight_average import WeightAverage
from swell.networks.actor_critics import ActorCritic
from swell.types import SampleLosses


@dataclass(frozen=True)
class DecoupledSettings:
    """The numbers of the objective; RunConfig explains each."""

    clip_range: float
    kl_penalty: float
    value_clip_range: float | None
    value_coefficient: float
    entropy_coefficient: float
    normalize_advantages: bool


Proximal = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Log-probabilities of the policy to stay near, from the chosen rows of a batch, their states and their actions."""


def averaged(average: WeightAverage[ActorCritic], actor: Actor) -> Proximal:
    """The policy of averaged weights, as it is when it is asked."""

    @torch.no_grad()
    def log_probs(chosen: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        return actor.space.kind.distribution(average.network.policy(states)).log_prob(actions)

    return log_probs


def decoupled_objective(
    actor: Actor,
    batch: PolicyBatch,
    advantages: Tensor,
    behavior: Tensor,
    proximal: Proximal,
    settings: DecoupledSettings,
    tally: Tally,
) -> SampleLosses:
    """Clip or penalty around the proximal policy, value and entropy; `behavior` are log-probabilities of all rows."""

    def sample_losses(chosen: Tensor) -> Tensor:
        states, actions = batch.states[chosen], batch.actions[chosen]
        parameters, values = actor.network(states)
        near = proximal(chosen, states, actions)
        distribution = actor.space.kind.distribution(parameters)
        log_probs, entropy = distribution.log_prob(actions), distribution.entropy()
        policy_loss = decoupled_clip(log_probs, near, behavior[chosen], advantages[chosen], settings.clip_range)
        value_loss = batch.value_losses(values, chosen, settings.value_clip_range)
        tally.add(
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            **distance(log_probs, near, settings.clip_range),
        )
        return (
            policy_loss
            + settings.kl_penalty * squared_log_ratio(log_probs, near)
            + settings.value_coefficient * value_loss
            - settings.entropy_coefficient * entropy
        )

    return sample_losses
