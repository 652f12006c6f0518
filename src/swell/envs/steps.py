"""How the backends put an EnvStep together."""

import numpy as np

from swell.envs.base import EnvStep


def learner_rewards(scores: np.ndarray, clip_rewards: bool) -> np.ndarray:
    """The rewards that the learner sees: their signs, where the settings ask for clipping."""
    return (np.sign(scores) if clip_rewards else scores).astype(np.float32)


def same_step(
    observations: np.ndarray,
    final_observations: np.ndarray,
    scores: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    clip_rewards: bool,
) -> EnvStep:
    """A step after which ended envs have already been reset, so that every row is a transition."""
    return EnvStep(
        observations=observations,
        rewards=learner_rewards(scores, clip_rewards),
        terminated=terminated,
        truncated=truncated,
        valid=np.ones(len(scores), dtype=np.bool_),
        scores=scores,
        episode_over=terminated | truncated,
        final_observations=final_observations,
    )
