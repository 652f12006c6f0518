"""The batch-size rules as a calculator: hyper-parameters of a preset, carried from one batch size to another."""

from dataclasses import replace

from swell.batch.hyperparameters import hyperparameters
from swell.batch.rules import BatchSizes, Rule, Tuned, adjusted
from swell.config.run_config import RunConfig

ALL_RULES: tuple[Rule, ...] = ("learning-rate", "betas", "proximal", "advantages", "phase")


def scale_report(config: RunConfig, from_batch: int, to_batch: int) -> str:
    """A table of what was tuned at one batch and what it becomes at the other, and the flags that say so."""
    config = replace(config, reference_batch=from_batch)
    found = hyperparameters(config)
    ratio = to_batch / from_batch
    sizes = BatchSizes(to_batch, found.reference.optimization * ratio)
    before, after = found.tuned, adjusted(found.tuned, found.reference, sizes, ALL_RULES)
    rows = [
        ("", f"batch {from_batch:,}", f"batch {to_batch:,}"),
        ("transitions per gradient step", _number(found.reference.optimization), _number(sizes.optimization)),
        ("learning rate", _number(before.learning_rate), _number(after.learning_rate)),
        *_averages(config, before, after),
        ("Adam betas (optional)", _pair(before.adam_betas), _pair(after.adam_betas)),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    table = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*table, "", *_advice(config, after)])


def _averages(config: RunConfig, before: Tuned, after: Tuned) -> list[tuple[str, str, str]]:
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


def _advice(config: RunConfig, after: Tuned) -> list[str]:
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
