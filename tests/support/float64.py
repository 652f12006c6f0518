"""Networks and learners in float64, where two ways of computing one thing agree on every CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from swell.collect.collector import Collector


@contextmanager
def everything_in_float64() -> Iterator[None]:
    """What torch makes, what `.float()` casts to and the rewards of rollouts are float64; random draws are others."""
    collect = Collector.collect

    def collect_in_float64(*arguments, **named):
        rollout = collect(*arguments, **named)
        return replace(rollout, rewards=rollout.rewards.double())

    before = torch.get_default_dtype()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "float", Tensor.double)
        patch.setattr(Collector, "collect", collect_in_float64)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
