"""Statistics of whole episodes."""

from collections import deque
from typing import Any

import numpy as np

from swell.envs.contract import EnvStep
from swell.ranks import everyones, is_alone, place, total

EPISODES_REMEMBERED = 100


class EpisodeStatistics:
    """Unclipped returns and lengths of whole episodes, as an onlooker would count them."""

    def __init__(self, num_envs: int) -> None:
        self.finished = 0
        self.abandoned = 0
        self.returns: deque[float] = deque(maxlen=EPISODES_REMEMBERED)
        self.lengths: deque[int] = deque(maxlen=EPISODES_REMEMBERED)
        self._return_so_far = np.zeros(num_envs)
        self._length_so_far = np.zeros(num_envs, dtype=np.int64)
        self._steps = 0
        self._ended: list[tuple[int, int, float, int]] = []
        """Where several processes share a run: step, env, return and length of what ended since they last told."""

    def add(self, result: EnvStep) -> None:
        """Counts one step of all envs."""
        returns, lengths, over = self._return_so_far, self._length_so_far, result.episode_over
        returns += result.scores
        lengths += result.valid
        self._steps += 1
        if not np.count_nonzero(over):
            return
        if is_alone():
            self.extend(returns[over], lengths[over])
        else:
            envs = np.flatnonzero(over)
            numbers = envs + place().rank * len(over)
            ended = (numbers.tolist(), returns[envs].tolist(), lengths[envs].tolist())
            self._ended.extend((self._steps, *episode) for episode in zip(*ended, strict=True))
        returns[over] = 0.0
        lengths[over] = 0

    def tell(self) -> None:
        """After a rollout: lets all processes count the episodes of all, in the order in which they ended."""
        if is_alone():
            return
        ended = sorted(episode for episodes in everyones(self._ended) for episode in episodes)
        self._ended.clear()
        self.extend(np.array([episode[2] for episode in ended]), np.array([episode[3] for episode in ended], np.int64))

    @property
    def in_flight(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths so far of every env's episode; who steps envs by itself counts in these."""
        return self._return_so_far, self._length_so_far

    def extend(self, returns: np.ndarray, lengths: np.ndarray) -> None:
        """Episodes that ended, in the order in which they did."""
        self.finished += len(returns)
        self.returns.extend(returns.tolist())
        self.lengths.extend(lengths.tolist())

    def abandon(self) -> None:
        """Forgets the episodes in flight: they are not counted in any mean."""
        self.abandoned += total(int((self._length_so_far > 0).sum()))
        self._return_so_far[:] = 0.0
        self._length_so_far[:] = 0

    def summary(self) -> dict[str, float]:
        """Means over the last 100 episodes; absent until one has finished."""
        if not self.returns:
            return {"episodes": self.finished}
        return {
            "episodes": self.finished,
            "episode_return": float(np.mean(self.returns)),
            "episode_length": float(np.mean(self.lengths)),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "finished": self.finished,
            "abandoned": self.abandoned,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "return_so_far": self._return_so_far.copy(),
            "length_so_far": self._length_so_far.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.finished = state["finished"]
        self.abandoned = state["abandoned"]
        self.returns.extend(state["returns"])
        self.lengths.extend(state["lengths"])
        self._return_so_far[:] = state["return_so_far"]
        self._length_so_far[:] = state["length_so_far"]
