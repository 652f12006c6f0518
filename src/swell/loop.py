"""The loop: collect, look, update, look again, adjust the batch."""

from collections.abc import Iterator

from swell.collect.collector import Collector
from swell.measurement import Measurement
from swell.types import Iteration, Learner, Scaler


def train(
    collector: Collector, learner: Learner, measurement: Measurement, scaler: Scaler, total_env_steps: int
) -> Iterator[Iteration]:
    """Adaptive batch scaling; with a FixedScaler, the plain algorithm.

    All state lives in the four objects: stop between two iterations, call it again, and the same run goes on.
    """
    while collector.env_steps < total_env_steps:
        progress = collector.env_steps / total_env_steps
        plan = scaler.plan(progress)  # L_adapt, epochs, minibatches
        rollout = collector.collect(learner, plan.horizon, total_env_steps)
        due = measurement.due(collector.num_rollouts, collector.env_steps)
        before = measurement.observe(learner, rollout) if due else None
        metrics = learner.update(rollout, plan, progress)  # theta -> theta'
        reading = measurement.compare(before, learner) if due else None
        if reading is not None:
            scaler.adjust(reading)  # next L_adapt
        yield Iteration(collector.num_rollouts, collector.env_steps, rollout.horizon, plan, reading, metrics)
