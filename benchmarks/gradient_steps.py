"""What an update and an act cost with compiled kernels and by autograd, in turns in one process.

    python -m benchmarks.gradient_steps
    python -m benchmarks.gradient_steps --only ppo-cartpole pqn-cartpole --rounds 3

The rollout is made up and always the same, so that nothing but the learner is timed. The first update, which may
compile, is left out. A ratio is taken within each round; medians of the rounds are printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, Space

from swell.algorithms.ess import ESSPPO
from swell.algorithms.ppg import PPG
from swell.algorithms.ppo import PPO
from swell.algorithms.ppo_ewma import PPOEWMA
from swell.algorithms.pqn import PQN
from swell.errors import ConfigError
from swell.memory.dry_run import made_up_rollout
from swell.types import BatchPlan, Learner, Rollout

PATHS = ("autograd", "compiled")
ACTS = 200
"""Vector steps for one time of `act`, which is too short to be timed alone."""

CARTPOLE = Box(-np.inf, np.inf, (4,), np.float32), Discrete(2)
MINATAR = Box(0, 1, (4, 10, 10), np.uint8), Discrete(3)
CHEETAH = Box(-np.inf, np.inf, (17,), np.float32), Box(-1.0, 1.0, (6,), np.float32)

POLICY = {
    "hidden": (64, 64),
    "activation": "tanh",
    "norm_over": "none",
    "learning_rate": 1e-3,
    "max_gradient_norm": 0.5,
    "entropy_coefficient": 0.0,
}


@dataclass(frozen=True)
class Case:
    """A learner, and the batch that it trains on."""

    kind: Callable[..., Learner]
    spaces: tuple[Space, Space]
    num_envs: int
    plan: BatchPlan
    settings: Mapping[str, Any]


CASES = {
    "pqn-cartpole": Case(PQN, CARTPOLE, 32, BatchPlan(64, epochs=4, minibatches=16), {"hidden": (256, 256)}),
    "pqn-minatar": Case(PQN, MINATAR, 128, BatchPlan(32, epochs=2, minibatches=32), {}),
    "ppo-cartpole": Case(
        PPO,
        CARTPOLE,
        8,
        BatchPlan(32, epochs=20, minibatches=1),
        {**POLICY, "advantage_norm": "minibatch", "discount": 0.98, "trace_decay": 0.8},
    ),
    "ppo-halfcheetah": Case(
        PPO,
        CHEETAH,
        1,
        BatchPlan(2048, epochs=10, minibatches=32),
        {
            **POLICY,
            "advantage_norm": "minibatch",
            "value_clip_range": 0.2,
            "normalize_observations": True,
            "normalize_rewards": True,
        },
    ),
    "ppo-ewma-cartpole": Case(PPOEWMA, CARTPOLE, 8, BatchPlan(128, epochs=1, minibatches=8), POLICY),
    # An auxiliary phase after every fourth rollout, so that each timed turn of four updates has one.
    "ppg-cartpole": Case(
        PPG, CARTPOLE, 8, BatchPlan(128, epochs=1, minibatches=8), {**POLICY, "phase_env_steps": 4 * 8 * 128}
    ),
    "ess-cartpole": Case(ESSPPO, CARTPOLE, 8, BatchPlan(128, epochs=10, minibatches=8), POLICY),
}
UPDATES = 4
"""In one turn."""


class Timed:
    """One learner of a case with its rollout, ready for its turns."""

    def __init__(self, case: Case, **path: str) -> None:
        self._learner = case.kind(*case.spaces, **case.settings, **path)
        self._plan = case.plan
        self._observations = made_up_observations(case)
        self._rollout = self._make_rollout()
        self.update_seconds: list[float] = []
        self.act_seconds: list[float] = []
        self._times()  # compiles and allocates

    def turn(self) -> None:
        update, act = self._times()
        self.update_seconds.append(update)
        self.act_seconds.append(act)

    def _times(self) -> tuple[float, float]:
        """Of one update and of one act."""
        started = time.perf_counter()
        for _ in range(UPDATES):
            self._learner.update(self._rollout, self._plan, 0.5)
        updated = time.perf_counter()
        for _ in range(ACTS):
            self._learner.act(self._observations[0], 0.5)
        return (updated - started) / UPDATES, (time.perf_counter() - updated) / ACTS

    def _make_rollout(self) -> Rollout:
        actions, recorded = self._learner.act(self._observations[0], 0.5)
        rollout = made_up_rollout(self._observations, actions, recorded)
        rollout.rewards.copy_(torch.randn(rollout.rewards.shape, generator=torch.Generator().manual_seed(2)))
        return rollout


def made_up_observations(case: Case) -> torch.Tensor:
    """[T + 1, N, ...] of the space's own kind, the same for both paths."""
    space, generator = case.spaces[0], np.random.default_rng(1)
    shape = (case.plan.horizon + 1, case.num_envs, *(space.shape or ()))
    if space.dtype == np.uint8:
        return torch.from_numpy(generator.integers(2, size=shape, dtype=np.uint8))
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))


def learners(case: Case) -> dict[str, Timed]:
    """By path; where Swell has no choice of path, what there is. A path that refuses this case is named."""
    found: dict[str, Timed] = {}
    for path in PATHS:
        try:
            found[path] = Timed(case, path=path)
        except ConfigError as error:
            print(f"  path {path}: {error}")
    return found or {"the only path": Timed(case)}


def measure(name: str, rounds: int) -> None:
    timed = learners(CASES[name])
    for turn in range(rounds):
        for one in timed.values() if turn % 2 == 0 else reversed(timed.values()):
            one.turn()
    updates = {path: one.update_seconds for path, one in timed.items()}
    acts = {path: one.act_seconds for path, one in timed.items()}
    print(f"{name:20}update  {told(updates, 1e3, 'ms')}", flush=True)
    print(f"{'':20}act     {told(acts, 1e6, 'µs')}", flush=True)


def told(seconds: Mapping[str, list[float]], scale: float, unit: str) -> str:
    """The median of each path and, where there are two, that of the rounds' ratios."""
    words = [f"{path} {scale * statistics.median(values):.3g} {unit}" for path, values in seconds.items()]
    if len(seconds) == len(PATHS):
        by_autograd, compiled = (seconds[path] for path in PATHS)
        ratios = [ours / theirs for ours, theirs in zip(compiled, by_autograd, strict=True)]
        words.append(f"compiled / autograd {statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})")
    return ", ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for name in given.only:
        measure(name, given.rounds)


if __name__ == "__main__":
    main()
