"""What a policy of another library says, from the distributions of torch that it makes."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal

from swell.errors import ConfigError
from swell.learning.distributions import categorical_view, gaussian_view, multi_categorical_view
from swell.types import PolicyView


def view_of(distribution: Distribution | Sequence[Distribution], actions: Tensor | None = None) -> PolicyView:
    """Of a batch of distributions, or of one for each component of an action; a copy that outlives the next pass.

    `actions` are those that were taken, [M] or [M, K].
    """
    if isinstance(distribution, Independent):
        distribution = cast(Distribution, distribution.base_dist)
    if isinstance(distribution, Normal):
        return gaussian_view(distribution.mean, distribution.stddev.log(), actions)
    if isinstance(distribution, Categorical):
        return categorical_view(distribution.logits, _whole(actions))
    if isinstance(distribution, Bernoulli):  # yes or no, with the logits of both
        both = torch.stack((torch.zeros_like(distribution.logits), distribution.logits), dim=-1)
        return multi_categorical_view(both.unbind(1), _whole(actions))
    if isinstance(distribution, Sequence) and all(isinstance(part, Categorical) for part in distribution):
        return multi_categorical_view([cast(Categorical, part).logits for part in distribution], _whole(actions))
    kinds = "Normal, Categorical or Bernoulli"
    raise ConfigError(f"the policy must have distributions that are {kinds}, got {type(distribution).__name__}")


def _whole(actions: Tensor | None) -> Tensor | None:
    return None if actions is None else actions.long()
