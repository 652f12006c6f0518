"""Rules that keep learning the same when the batch changes (arXiv 2110.00641): numbers in, numbers out.

Every rule takes `divisor` c, how many times smaller the batch is than the one the hyper-parameter was tuned at; a batch
that grew has c < 1. What a rule holds constant is an amount of env steps, so rules compose: c₁ and then c₂ is c₁·c₂
(the span of the advantages has a bound, and says so). They hold for one epoch and below the critical batch size.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Rule = Literal["learning-rate", "betas", "proximal", "advantages", "phase"]
DEFAULT_RULES: tuple[Rule, ...] = ("learning-rate", "proximal", "advantages", "phase")
"""Those of the published runs; the paper found that adjusting Adam's betas makes little difference."""


@dataclass(frozen=True)
class BatchSizes:
    """The two batches of an iteration, in transitions."""

    iteration: float
    """B_iter, in a rollout."""
    optimization: float
    """B_opt, in a gradient step."""


@dataclass(frozen=True)
class Tuned:
    """Hyper-parameters as tuned at a reference batch, or what they become at another."""

    learning_rate: float
    adam_betas: tuple[float, float]
    proximal_decay: float
    """Per gradient step, of the average of weights."""
    advantage_decay: float
    """Per rollout, of the moments that normalise advantages."""
    phase_iterations: float
    """Rollouts between two auxiliary phases."""


def adjusted(
    tuned: Tuned, reference: BatchSizes, current: BatchSizes, rules: Collection[Rule] = DEFAULT_RULES
) -> Tuned:
    """What `tuned` at the `reference` batch becomes at the `current` one; a rule not named leaves its number alone."""
    optimization = reference.optimization / current.optimization
    iteration = reference.iteration / current.iteration
    learning_rate, betas = tuned.learning_rate, tuned.adam_betas
    proximal, advantage, phase = tuned.proximal_decay, tuned.advantage_decay, tuned.phase_iterations
    if "learning-rate" in rules:
        learning_rate = scaled_learning_rate(learning_rate, optimization)
    if "betas" in rules:
        betas = scaled_betas(betas, optimization)
    if "proximal" in rules:
        proximal = scaled_proximal_decay(proximal, optimization)
    if "advantages" in rules:
        advantage = scaled_advantage_decay(advantage, iteration)
    if "phase" in rules:
        phase *= iteration
    return Tuned(learning_rate, betas, proximal, advantage, phase)


def scaled_learning_rate(learning_rate: float, divisor: float) -> float:
    """α / √c, for Adam; plain SGD would want α / c."""
    return learning_rate / math.sqrt(divisor)


def scaled_betas(betas: tuple[float, float], divisor: float) -> tuple[float, float]:
    """β^(1/c): as much is forgotten over c small gradient steps as over one large one."""
    return betas[0] ** (1.0 / divisor), betas[1] ** (1.0 / divisor)


def scaled_proximal_decay(decay: float, divisor: float) -> float:
    """The decay whose centre of mass, 1/(1 − β) − 1 gradient steps, is c times that of `decay`.

    β' = cβ / (cβ + 1 − β)
    """
    return divisor * decay / (divisor * decay + 1.0 - decay)


def scaled_advantage_decay(decay: float, divisor: float) -> float:
    """The decay whose span, 2/(1 − β) − 1 rollouts, is c times that of `decay` but not below the present rollout.

        S = (1 + β)/(1 − β);   β' = (S' − 1)/(S' + 1),   S' = max(1, cS)

    Where the bound holds, the batch has outgrown the span and the rule no longer composes: what was forgotten does not
    come back with a smaller batch. So apply it to the tuned value, never to one already adjusted.
    """
    kept, dropped = divisor * (1.0 + decay), 1.0 - decay
    return max(0.0, (kept - dropped) / (kept + dropped))
