"""The spaces of a run as its directory keeps them: a policy can be loaded without its env."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space

from swell.envs import VectorEnv
from swell.envs.space_data import space_data, space_from
from swell.envs.spaces import BadAnswerError, ObservationEncoder, checked_mask, mask_sizes
from swell.errors import ConfigError


@dataclass(frozen=True)
class RunSpaces:
    """What the learner of a run sees and does, and how one gets there from what the env shows."""

    observation: Space[Any]
    """One array per env, as the learner sees it."""
    action: Space[Any]
    source: Space[Any]
    """Of the env itself."""
    masks: int = 0

    def rows(self, observations: Any, action_mask: Any = None) -> tuple[np.ndarray, bool]:
        """Observations as the learner sees them, [B, ...], and whether there was only one.

        They may be one observation of the env, several in a list or an array, or rows that envs of Swell returned. A
        policy that knows masks wants one for each observation of the env itself.
        """
        shape = self.observation.shape or ()
        seen = observations if self._is_raw(observations, action_mask) else np.asarray(observations)
        if isinstance(seen, np.ndarray) and action_mask is None and shape in (seen.shape, seen.shape[1:]):
            return (seen[None], True) if seen.shape == shape else (seen, False)
        is_one = not isinstance(seen, list) and getattr(seen, "shape", None) in (None, self.source.shape)
        each, masks = ([seen], [action_mask]) if is_one else (list(seen), action_mask)
        masks = [None] * len(each) if masks is None else masks
        encoder = ObservationEncoder(self.source, "policy", self.masks)
        try:
            if not self.masks:
                return np.stack([encoder.encode(one) for one in each]), is_one
            return np.stack([self._masked(encoder, *pair) for pair in zip(each, masks, strict=True)]), is_one
        except (BadAnswerError, ValueError) as error:
            raise ConfigError(f"the policy got other observations than its env has: {error}") from error

    def _is_raw(self, observations: Any, action_mask: Any) -> bool:
        """Whether they are what the env shows, and no array yet."""
        return action_mask is not None or not (isinstance(self.source, Box) or hasattr(observations, "shape"))

    def _masked(self, encoder: ObservationEncoder, observation: Any, mask: Any) -> np.ndarray:
        if mask is None:
            raise ConfigError("the policy needs action_mask beside each observation, as its env gives it in its infos")
        return encoder.encode_masked(observation, checked_mask(mask, mask_sizes(self.action)))


def stored_spaces(envs: VectorEnv) -> dict[str, Any] | None:
    """What config.json holds; None where a space has no plain form."""
    observed = envs.observation_space
    source, action = space_data(getattr(observed, "source", observed)), space_data(envs.action_space)
    if source is None or action is None:
        return None
    return {"observation": source, "action": action, "action_mask": getattr(observed, "masks", 0) > 0}


def spaces_of(envs: VectorEnv) -> RunSpaces:
    """The same, from envs."""
    observed = envs.observation_space
    return RunSpaces(observed, envs.action_space, getattr(observed, "source", observed), getattr(observed, "masks", 0))


def restored_spaces(stored: dict[str, Any]) -> RunSpaces:
    source, action = space_from(stored.get("observation")), space_from(stored.get("action"))
    masks = sum(mask_sizes(action)) if stored.get("action_mask") else 0
    encoded = ObservationEncoder(source, "policy", masks).space
    is_same = not masks and type(encoded) is type(source)
    return RunSpaces(source if is_same else encoded, action, source, masks)
