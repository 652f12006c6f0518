"""What every backend agrees on: settings, one batch of envs, one convention for episode ends, seeds.

NumPy is imported by the functions that need it: a command line that only names envs must not wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from swell.config.runs import EnvSettings

if TYPE_CHECKING:
    import numpy as np
    from gymnasium.spaces import Space

ResumeTier = Literal["exact", "replay", "continuing"]
"""How a run continues after a restart:

- `exact`: the state of every env is saved, so the resumed run equals the uninterrupted one.
- `replay`: the state is rebuilt by playing the actions of the unfinished episodes again, then checked.
- `continuing`: episodes in flight are lost and the envs restart from new seeds.
"""

OTHER_LIMIT = "--env-timeout sets another limit, 0 none"
"""Said of an env that hangs."""

MAX_ATARI_STEPS = 27_000
"""108,000 frames: half an hour of play, the limit behind every published score."""


@dataclass(frozen=True, kw_only=True)
class EnvBatch(EnvSettings):
    """Everything a backend needs to build a batch of envs: their settings, and what is of this batch alone."""

    seed: int = 1
    threads: int = 0
    """For backends that step their envs in threads of their own; 0 is as many as there are cores."""
    first_env: int = 0
    """Number of the first of these envs where they are a part of more; what an env plays depends on its number."""
    render_mode: str | None = None
    has_masks: bool = False
    """Whether the envs say in `info["action_mask"]` which actions are allowed."""


class EnvStep(NamedTuple):
    """What one step of all envs returned; every array has one row per env.

    When an episode ends, `observations` either already belongs to the next episode (then `final_observations` holds
    the last observation of the old one) or is that last observation, and the next step is a reset row with `valid`
    False.
    A reset row is no transition: its action was ignored and its reward is 0. A lost life that terminates resets
    nothing: the game goes on from `observations`.
    """

    observations: np.ndarray
    rewards: np.ndarray  # float32, as the learner sees them: clipped if the settings say so
    terminated: np.ndarray  # bool; with episodic_life a lost life terminates too
    truncated: np.ndarray  # bool; a time limit: the learner bootstraps from final_observations
    valid: np.ndarray  # bool; False on reset rows
    scores: np.ndarray  # float64, unclipped rewards, for statistics
    episode_over: np.ndarray  # bool; the whole game ended, for statistics
    final_observations: np.ndarray | None  # [num_envs, ...]; None when observations are never replaced at an end


class VectorEnv(Protocol):
    """A batch of envs that step together and reset themselves.

    `step` takes one row per env: int64 [num_envs] for `Discrete`, int64 [num_envs, K] for `MultiDiscrete` and
    `MultiBinary`, float32 [num_envs, *shape] within the bounds for `Box`. Choices count from zero.
    """

    num_envs: int
    observation_space: Space[Any]
    """Of a single env."""
    action_space: Space[Any]
    """Of a single env."""

    @property
    def resume_tier(self) -> ResumeTier: ...

    def reset(self) -> np.ndarray:
        """Starts every env from its seed and returns the first observations."""
        ...

    def restart(self, resume_count: int) -> np.ndarray:
        """The same, from seeds drawn from the run's seed and `resume_count`; with 0 it is `reset`."""
        ...

    def step(self, actions: np.ndarray) -> EnvStep: ...

    def state_dict(self) -> dict[str, Any]:
        """Arrays, numbers, strings, lists and dicts that load_state_dict takes back."""
        ...

    def load_state_dict(self, state: dict[str, Any], resume_count: int) -> np.ndarray | None:
        """Puts the envs where they were. None means that they go on; otherwise the episodes in flight were lost,
        the envs were restarted with seeds drawn from the run's seed and `resume_count`, and these are their first
        observations.
        """
        ...

    def render(self) -> np.ndarray | None:
        """An RGB image of the first env, where the settings asked for one."""
        ...

    def close(self) -> None: ...


def learner_rewards(scores: np.ndarray, clip_rewards: bool) -> np.ndarray:
    """The rewards that the learner sees: their signs, where the settings ask for clipping."""
    if clip_rewards:
        import numpy as np

        scores = np.sign(scores)
    return scores.astype("float32")


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
        valid=_every_row(len(scores)).copy(),
        scores=scores,
        episode_over=terminated | truncated,
        final_observations=final_observations,
    )


@cache
def _every_row(num_envs: int) -> np.ndarray:
    """To be copied, which takes a quarter of the time of making it."""
    import numpy as np

    return np.ones(num_envs, dtype=np.bool_)


def env_seeds(seed: int, resume_count: int, num_envs: int, first_env: int = 0) -> list[int]:
    """One seed per env. A resumed run gets others, so that it does not play its first episodes again."""
    from numpy.random import SeedSequence

    words = SeedSequence((seed, resume_count)).generate_state(first_env + num_envs)
    return [int(word) >> 1 for word in words[first_env:]]


def episode_seed(seed: int, resume_count: int, env_index: int, episode: int) -> int:
    """The seed of one episode of one env; 31 bits, because ALE takes a signed int."""
    from numpy.random import SeedSequence

    return int(SeedSequence((seed, resume_count, env_index, episode)).generate_state(1)[0]) >> 1
