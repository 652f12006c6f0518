"""The numbers of an update at this moment of the run and at this size of the batch."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from swell.batch.rules import BatchSizes, Rule, Tuned, adjusted
from swell.config.run_config import RunConfig


@dataclass(frozen=True)
class Hyperparameters:
    """What was tuned at a reference batch, and which rules carry it to the batch at hand."""

    tuned: Tuned
    reference: BatchSizes
    rules: Collection[Rule]
    """None at all leaves everything as it was tuned."""
    anneal_learning_rate: bool

    def at(self, batch: BatchSizes, progress: float) -> Tuned:
        now = adjusted(self.tuned, self.reference, batch, self.rules)
        return replace(now, learning_rate=now.learning_rate * (1.0 - progress)) if self.anneal_learning_rate else now


def hyperparameters(config: RunConfig) -> Hyperparameters:
    """What the config says of the reference batch, and the rules that carry it to others."""
    batch = config.reference_batch or config.num_envs * config.horizon
    count = config.minibatches if config.minibatch_rule == "count" else max(1, round(batch / config.minibatch_size))
    tuned = Tuned(
        learning_rate=config.learning_rate,
        adam_betas=(config.adam_beta1, config.adam_beta2),
        proximal_decay=config.proximal_decay,
        advantage_decay=config.advantage_decay,
        phase_iterations=config.phase_env_steps / batch,
    )
    # Phases are counted in env steps, as the rule wants it, unless the rule is left out of those that are on.
    rules = config.invariance_rules if config.invariance == "on" else ("phase",)
    return Hyperparameters(tuned, BatchSizes(batch, batch / min(count, batch)), rules, config.anneal_learning_rate)
