"""Rules that keep learning the same when the batch changes (arXiv 2110.00641): numbers in, numbers out.

Every rule takes `divisor` c, how many times smaller the batch is than the one the hyper-parameter was tuned at; a batch
that grew has c < 1. What a rule holds constant is an amount of env steps, so rules compose: c₁ and then c₂ is c₁·c₂
(the span of the advantages has a bound, and says so). They hold for one epoch and below the critical batch size.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from swell.config.learners import (
    DecoupledSettings,
    InvarianceRule,
    PhaseSettings,
    PolicySettings,
    PPOEWMASettings,
)
from swell.config.run_config import RunConfig

ALL_RULES: tuple[InvarianceRule, ...] = ("learning-rate", "betas", "proximal", "advantages", "phase")
DEFAULT_RULES: tuple[InvarianceRule, ...] = ("learning-rate", "proximal", "advantages", "phase")
"""Those of the published runs; the paper found that adjusting Adam's betas makes little difference."""


@dataclass(frozen=True)
class BatchSizes:
    """The two batches of an iteration, in transitions."""

    iteration: float
    """B_iter, in a rollout."""
    optimization: float
    """B_opt, in a gradient step."""


@dataclass(frozen=True)
class Hyperparameters:
    """What depends on the size of the batch: as tuned at a reference batch, or what it becomes at another."""

    learning_rate: float
    adam_betas: tuple[float, float] = (0.9, 0.999)
    proximal_decay: float = 0.0
    """Per gradient step, of the average of weights."""
    advantage_decay: float = 0.0
    """Per rollout, of the moments that normalise advantages."""
    phase_iterations: float = 1.0
    """Rollouts between two auxiliary phases."""


@dataclass(frozen=True)
class BatchRules:
    """Carries hyper-parameters from the batch they were tuned at to the batch and the moment at hand."""

    tuned: Hyperparameters
    reference: BatchSizes
    rules: Collection[InvarianceRule]
    """None at all leaves everything as it was tuned."""
    anneal_learning_rate: bool

    def at(self, batch: BatchSizes, progress: float) -> Hyperparameters:
        now = adjusted(self.tuned, self.reference, batch, self.rules)
        return replace(now, learning_rate=now.learning_rate * (1.0 - progress)) if self.anneal_learning_rate else now


def batch_rules(settings: PolicySettings, reference: BatchSizes) -> BatchRules:
    """What the settings of a learner say: what was tuned, at which batch, and which rules are on."""
    tuned = Hyperparameters(
        learning_rate=settings.learning_rate,
        adam_betas=(settings.adam_beta1, settings.adam_beta2),
        proximal_decay=settings.proximal_decay if isinstance(settings, PPOEWMASettings) else 0.0,
        advantage_decay=settings.advantage_decay if isinstance(settings, DecoupledSettings) else 0.0,
        phase_iterations=settings.phase_env_steps / reference.iteration if isinstance(settings, PhaseSettings) else 1.0,
    )
    # Phases are counted in env steps, as the rule wants it, unless the rule is left out of those that are on.
    rules = settings.invariance_rules if settings.invariance == "on" else ("phase",)
    return BatchRules(tuned, reference, rules, settings.anneal_learning_rate)


def reference_batch(config: RunConfig) -> BatchSizes:
    """The batch at which the hyper-parameters of a config were tuned: its own, unless it names another."""
    batch = config.reference_batch or config.num_envs * config.horizon
    count = config.minibatches if config.minibatch_rule == "count" else max(1, round(batch / config.minibatch_size))
    return BatchSizes(batch, batch / min(count, batch))


def adjusted(
    tuned: Hyperparameters,
    reference: BatchSizes,
    current: BatchSizes,
    rules: Collection[InvarianceRule] = DEFAULT_RULES,
) -> Hyperparameters:
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
    return Hyperparameters(learning_rate, betas, proximal, advantage, phase)


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


def scale_report(config: RunConfig, from_batch: int, to_batch: int) -> str:
    """A table of what was tuned at one batch and what it becomes at the other, and the flags that say so."""
    config = replace(config, reference_batch=from_batch)
    reference = reference_batch(config)
    tuned = batch_rules(config, reference).tuned
    ratio = to_batch / from_batch
    sizes = BatchSizes(to_batch, reference.optimization * ratio)
    before, after = tuned, adjusted(tuned, reference, sizes, ALL_RULES)
    rows = [
        ("", f"batch {from_batch:,}", f"batch {to_batch:,}"),
        ("transitions per gradient step", _number(reference.optimization), _number(sizes.optimization)),
        ("learning rate", _number(before.learning_rate), _number(after.learning_rate)),
        *_averages(config, before, after),
        ("Adam betas (optional)", _pair(before.adam_betas), _pair(after.adam_betas)),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    table = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*table, "", *_advice(config, after)])


def _averages(config: RunConfig, before: Hyperparameters, after: Hyperparameters) -> list[tuple[str, str, str]]:
    """What only some learners have."""
    rows: list[tuple[str, str, str]] = []
    if config.algorithm in ("ppo-ewma", "ppg-ewma"):
        rows.append(("decay of the averaged policy", _number(before.proximal_decay), _number(after.proximal_decay)))
    if config.algorithm in ("ppo-ewma", "ppg", "ppg-ewma"):
        rows.append(("decay of the advantage moments", _number(before.advantage_decay), _number(after.advantage_decay)))
    if config.algorithm in ("ppg", "ppg-ewma"):
        label = f"rollouts per phase ({config.phase_env_steps:,} env steps)"
        rows.append((label, _number(before.phase_iterations), _number(after.phase_iterations)))
    return rows


def _advice(config: RunConfig, after: Hyperparameters) -> list[str]:
    flags = [f"--learning-rate {_number(after.learning_rate)}"]
    if config.algorithm in ("ppo-ewma", "ppg-ewma"):
        flags.append(f"--proximal-decay {_number(after.proximal_decay)}")
    if config.algorithm in ("ppo-ewma", "ppg", "ppg-ewma"):
        flags.append(f"--advantage-decay {_number(after.advantage_decay)}")
    lines = [
        f"by hand     {' '.join(flags)}",
        f"by itself   --reference-batch {config.reference_batch} --invariance on  (also while the batch moves)",
    ]
    if config.epochs > 1:
        lines.append(f"note        the rules hold for one epoch; {config.preset} makes {config.epochs}")
    if config.algorithm not in ("ppo-ewma", "ppg-ewma"):
        lines.append(
            f"note        {config.algorithm} stays near the policy that acted, so its trust region still moves"
        )
    return lines


def _number(value: float) -> str:
    return f"{value:.6g}"


def _pair(values: tuple[float, float]) -> str:
    return f"{values[0]:.6f}, {values[1]:.6f}"
