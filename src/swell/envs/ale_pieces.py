"""Many Atari envs as several vector envs of ale-py that step as one: they start sooner and can say how far they are.

ale-py loads the ROM to construct an env and again to seed it, 0.1 s each (docs/upstream/ale-py-palette.md). It
constructs in one thread that keeps Python waiting, and seeds in threads of its own. So while a piece is constructed,
the one before it is seeded. What an env plays depends on its own seed and actions alone, not on its piece.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv

from swell.envs.starting import tell

PIECE = 16
"""Envs of a piece. With more of them progress is seen less often, and the seeding of the last piece, for which nothing
is left to do meanwhile, takes longer; with fewer, a step takes more calls."""

Start = tuple[np.ndarray, dict[str, Any]]
"""Observations and infos after a reset."""


class AlePieces:
    """`num_envs` envs, each piece made by `make(size)`. Several pieces are seeded with `first_seeds` from the start."""

    def __init__(self, make: Callable[[int], AtariVectorEnv], num_envs: int, first_seeds: np.ndarray) -> None:
        self._begins = list(range(0, num_envs, PIECE))
        self._pieces: list[AtariVectorEnv] = []
        self._first_seeds = first_seeds
        self._first_start: Start | None = None
        if len(self._begins) == 1:
            self._pieces.append(make(num_envs))  # not seeded: it may only be asked for its spaces
        else:
            self._first_start = self._start_in_turn(make, num_envs)
        self.single_observation_space = self._pieces[0].single_observation_space
        self.single_action_space = self._pieces[0].single_action_space

    def reset(self, mask: np.ndarray, seeds: np.ndarray | None) -> Start:
        """Restarts the envs of `mask`, with one seed for each of them if there are any."""
        first_start, self._first_start = self._first_start, None
        if first_start is not None and mask.all() and seeds is not None and np.array_equal(seeds, self._first_seeds):
            return first_start
        masks = self._split(mask)
        ends = np.cumsum([piece_mask.sum() for piece_mask in masks])[:-1]
        piece_seeds = [None] * len(masks) if seeds is None else np.split(seeds, ends)
        with ThreadPoolExecutor(len(masks)) as pool:
            return _joined_starts(list(pool.map(_reset, self._pieces, masks, piece_seeds)))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """All pieces play at once; each is read while the later ones may still be playing."""
        self._first_start = None
        for piece, piece_actions in zip(self._pieces, self._split(actions), strict=True):
            piece.send(piece_actions)
        results = [piece.recv() for piece in self._pieces]
        if len(results) == 1:
            return results[0]
        observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
        if any("final_obs" in info for info in infos):  # rows of envs that go on mean nothing
            infos = [{"final_obs": seen, **info} for seen, info in zip(observations, infos, strict=True)]
        join = np.concatenate
        return join(observations), join(rewards), join(terminated), join(truncated), _joined_infos(list(infos))

    def close(self) -> None:
        for piece in self._pieces:
            piece.close()

    def _start_in_turn(self, make: Callable[[int], AtariVectorEnv], num_envs: int) -> Start:
        """Constructs the pieces one after the other, and seeds each while the next is constructed."""
        starts: list[Future[Start]] = []
        tell(0, num_envs)
        with ThreadPoolExecutor(1) as pool:
            for seeds in self._split(self._first_seeds):
                self._pieces.append(make(len(seeds)))
                starts.append(pool.submit(_reset, self._pieces[-1], np.ones(len(seeds), dtype=np.bool_), seeds))
                tell(self._begins[len(starts) - 1] + len(seeds), num_envs)
            return _joined_starts([start.result() for start in starts])

    def _split(self, rows: np.ndarray) -> list[np.ndarray]:
        return np.split(rows, self._begins[1:])


def _reset(piece: AtariVectorEnv, mask: np.ndarray, seeds: np.ndarray | None) -> Start:
    return piece.reset(seed=seeds, options={"reset_mask": mask})


def _joined_starts(starts: list[Start]) -> Start:
    observations, infos = zip(*starts, strict=True)
    return np.concatenate(observations), _joined_infos(list(infos))


def _joined_infos(infos: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([info[name] for info in infos]) for name in infos[0]}
