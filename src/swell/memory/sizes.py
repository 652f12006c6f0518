"""Sizes that cannot fit, whatever else a run is made of: refused before anything is made of them."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from gymnasium.spaces import Space

from swell.config.run_config import RunConfig
from swell.envs import VectorEnv
from swell.errors import OutOfMemoryError
from swell.memory.system import resident_memory

MB = 2**20
LEAST_OF_AN_ENV = 200
"""Bytes: even compiled envs keep a state, an observation and the statistics of an episode."""
LEAST_OF_A_WORKER = 2 * MB
"""What a process with an env in it has for itself."""
MANY_ENVS = 1000
TRIED_ENVS = 100
"""Of many envs, so many are made first, and say what all would take."""
COPIES_OF_A_WEIGHT = 4
"""Itself, its gradient, and two averages of the optimizer."""


def require_envs(config: RunConfig, limit: float | None) -> None:
    """Refuses envs that would not fit if they were as small as envs can be."""
    each = LEAST_OF_A_WORKER if config.async_envs else LEAST_OF_AN_ENV
    _require(f"num_envs {config.num_envs}", "at least", config.num_envs * each, limit, "num_envs")


def try_envs(config: RunConfig, make_envs: Callable[[RunConfig], VectorEnv], limit: float | None) -> None:
    """Where there are many, makes a few of them and refuses the rest if these say that they will not fit."""
    if config.num_envs <= MANY_ENVS or limit is None:
        return
    before = resident_memory() or 0
    envs = make_envs(replace(config, async_envs=False, num_envs=TRIED_ENVS))
    envs.reset()
    each = ((resident_memory() or 0) - before) / TRIED_ENVS
    envs.close()
    _require(f"num_envs {config.num_envs}", "about", before + config.num_envs * each, limit, "num_envs")


def require_network(config: RunConfig, observations: Space, limit: float | None) -> None:
    """Refuses an MLP whose weights alone are too much; other networks have sizes of their own."""
    shape = tuple(observations.shape or ())
    if config.network != "mlp" and not (config.network == "auto" and len(shape) <= 1):
        return
    weights = sum(width * next_width for width, next_width in pairwise([math.prod(shape), *config.hidden]))
    widths = " ".join(map(str, config.hidden))
    _require(f"hidden {widths}", "at least", 4 * COPIES_OF_A_WEIGHT * weights, limit, "hidden")


def _require(what: str, about: str, needed: float, limit: float | None, option: str) -> None:
    if limit is not None and needed > limit:
        raise OutOfMemoryError(
            f"{what} takes {about} {needed / MB:,.0f} MB, and the limit is {limit / MB:,.0f} MB; "
            f"lower {option} or raise memory_limit"
        )
