"""Artificial staleness: rollouts that wait in a queue before they are trained on."""

from collections import deque
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from swell.types import Rollout


class RolloutDelay:
    """First in, first out; full when it holds `delay` rollouts beside the one to take out.

    What is popped was collected by the policy of `delay` iterations ago: its recorded distributions are those that
    acted. This is how a learner that lags behind its actors sees the world (arXiv 2110.00641, figure 1).
    """

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._waiting: deque[Rollout] = deque()

    @property
    def is_full(self) -> bool:
        return len(self._waiting) > self._delay

    def push(self, rollout: Rollout) -> None:
        """Keeps a copy: a rollout is a view of a buffer that the next one overwrites."""
        self._waiting.append(_mapped(rollout, torch.clone))

    def pop(self) -> Rollout:
        return self._waiting.popleft()

    def state_dict(self) -> dict[str, Any]:
        return {
            "waiting": [
                {field.name: getattr(rollout, field.name) for field in fields(Rollout)} for rollout in self._waiting
            ]
        }

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self._waiting = deque(_mapped(Rollout(**saved), lambda tensor: tensor.to(device)) for saved in state["waiting"])


def _mapped(rollout: Rollout, change: Callable[[Tensor], Tensor]) -> Rollout:
    changed: dict[str, Any] = {}
    for field in fields(Rollout):
        value = getattr(rollout, field.name)
        changed[field.name] = change(value) if isinstance(value, Tensor) else {n: change(t) for n, t in value.items()}
    return Rollout(**changed)
