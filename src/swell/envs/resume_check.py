"""Finds out, by trying, whether saving and restoring an env loses anything."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

import numpy as np

from swell.envs.capture import NotPlainError
from swell.envs.contract import EnvBatch, EnvStep, ResumeTier, VectorEnv
from swell.envs.spaces import allowed_choices, mask_sizes

EPISODE_STEPS = 16
"""Short, so that the trial goes through several episode ends: there the envs draw random numbers."""
STEPS_BEFORE, STEPS_AFTER = 21, 45


class SavableEnvs(VectorEnv, Protocol):
    """Envs that can save and restore themselves, perhaps completely."""

    def saved_state(self) -> dict[str, Any]: ...

    def restore_state(self, state: dict[str, Any]) -> None: ...

    def restart(self, resume_count: int) -> np.ndarray: ...


def save(envs: SavableEnvs) -> dict[str, Any]:
    """What a checkpoint holds of these envs: all of their state or, if that would not be enough, nothing."""
    return envs.saved_state() if envs.resume_tier == "exact" else {}


def resume(envs: SavableEnvs, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
    """Puts the envs where they were, or restarts them and returns the first observations."""
    if not state or envs.resume_tier != "exact":
        return envs.restart(resume_count)
    try:
        envs.restore_state(state)
    except NotPlainError as error:
        warnings.warn(f"the episodes in flight are lost: {error}", stacklevel=3)
        return envs.restart(resume_count)
    return None


def resume_tier_of(kind: Callable[[EnvBatch], SavableEnvs], settings: EnvBatch) -> ResumeTier:
    """`exact` if two small copies of these envs, one of them restored, do the same to the last bit."""
    made_of: dict[str, Any] = {
        "env_kwargs": settings.env_kwargs,
        "wrappers": settings.wrappers,
        "has_masks": settings.has_masks,
    }
    trial = EnvBatch(settings.env, num_envs=2, seed=0, max_episode_steps=EPISODE_STEPS, **made_of)
    return _tried_tier(kind, trial)


@cache
def _tried_tier(kind: Callable[[EnvBatch], SavableEnvs], trial: EnvBatch) -> ResumeTier:
    original, restored = kind(trial), kind(replace(trial, seed=1))
    try:
        return "exact" if restores_exactly(original, restored) else "continuing"
    finally:
        original.close()
        restored.close()


def restores_exactly(original: SavableEnvs, restored: SavableEnvs) -> bool:
    """Whether the second envs, after taking over the state of the first, go on exactly like them."""
    observations = original.reset()
    original.action_space.seed(0)
    observations = _played(original, observations, STEPS_BEFORE)[0][-1].observations
    state = original.saved_state()
    expected, actions = _played(original, observations, STEPS_AFTER)
    try:
        restored.restore_state(state)
    except NotPlainError:
        return False
    steps = [restored.step(action) for action in actions]
    same_steps = all(same_state(list(first), list(second)) for first, second in zip(expected, steps, strict=True))
    return same_steps and same_state(original.saved_state(), restored.saved_state())


def _played(envs: SavableEnvs, observations: np.ndarray, steps: int) -> tuple[list[EnvStep], list[np.ndarray]]:
    """What random actions, all of them allowed, led to; and these actions."""
    space, masks = envs.action_space, getattr(envs.observation_space, "masks", 0)
    results: list[EnvStep] = []
    actions: list[np.ndarray] = []
    for _ in range(steps):
        drawn = np.stack([space.sample() for _ in range(envs.num_envs)])
        if masks:
            drawn = allowed_choices(drawn, observations[:, -masks:], mask_sizes(space))
        actions.append(drawn)
        results.append(envs.step(drawn))
        observations = results[-1].observations
    return results, actions


def same_state(first: Any, second: Any) -> bool:
    """Equality of plain data that may hold arrays, to the last bit."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same_state(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same_state, first, second))
    return first == second
