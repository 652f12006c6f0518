"""Tianshou 2 with a batch that grows as the policy settles: a trainer in place of `OnPolicyTrainer`.

    AdaptiveTrainer(algorithm, params, min_steps=64, max_steps=512).run()

in place of `algorithm.run_training(params)`, for every on-policy algorithm with a stochastic policy. Each reading acts
on the next rollout. Needs the extra `tianshou`.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR

from swell.batch.controller import BatchController
from swell.errors import ConfigError
from swell.plugins.options import adaptive_controller, is_due
from swell.plugins.views import view_of
from swell.types import PolicyView, Signal

try:
    from tianshou.algorithm.algorithm_base import OnPolicyAlgorithm, TrainingStats
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.algorithm.optim import LRSchedulerFactoryLinear
    from tianshou.data import CollectStats
    from tianshou.trainer import OnPolicyTrainer, OnPolicyTrainerParams
except ImportError as error:
    raise ConfigError('swell.plugins.tianshou needs Tianshou: pip install "swell-rl[tianshou]"') from error

PROBE_STATES = 1024
"""Most states that a reading looks at."""


class BatchTrainer(OnPolicyTrainer):
    """An OnPolicyTrainer with a BatchController; the two below make theirs by themselves.

    It moves `params.collection_step_num_env_steps`. `state_dict()` is plain data, for your `save_checkpoint_fn`.
    """

    def __init__(
        self,
        algorithm: OnPolicyAlgorithm,
        params: OnPolicyTrainerParams,
        controller: BatchController,
        *,
        max_steps: int,
        every: int | None = 1,
        probe_states: int = PROBE_STATES,
        seed: int = 0,
    ) -> None:
        name = type(self).__name__
        if not isinstance(algorithm, OnPolicyAlgorithm):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"{name} needs an on-policy algorithm such as PPO or A2C, got {type(algorithm).__name__}")
        if not isinstance(algorithm.policy, ProbabilisticActorPolicy):
            raise ConfigError(
                f"{name} needs a policy with an actor and a dist_fn, got {type(algorithm.policy).__name__}"
            )
        _require_room(params, max_steps)
        super().__init__(algorithm, params)
        self.controller = controller
        self._every = every
        self._probe_states = probe_states
        self._seed = seed
        self._planned_env_steps = cast(int, params.collection_step_num_env_steps)
        self._env_steps_with_this = 0
        for scheduler in algorithm.lr_schedulers:
            self._follow_env_steps(scheduler)
        self._set_length()

    def _update_step(self, collect_stats: Any = None) -> TrainingStats:
        collected = cast(CollectStats, collect_stats).n_collected_steps
        self._env_steps_with_this = self._env_step + collected
        total = self.params.max_epochs * self.params.epoch_num_steps
        self.controller.progress = min(1.0, self._env_steps_with_this / total)
        is_looked_at = is_due(self._every, self._env_steps_with_this, collected)
        finish = self.controller.look(self._policy_on_probes()) if is_looked_at else lambda: None
        stats = super()._update_step(collect_stats)
        reading = finish()
        self._set_length()
        self._log(reading)
        return stats

    def _set_length(self) -> None:
        self.params.collection_step_num_env_steps = self.controller.horizon * self.params.training_collector.env_num

    def _policy_on_probes(self) -> Callable[[], PolicyView]:
        """What the policy says on some states of the buffer, which the update empties.

        Not by calling the policy, which would sample and so change the training.
        """
        buffer = self.params.training_collector.buffer
        indices = buffer.sample_indices(0)
        if len(indices) > self._probe_states:
            generator = np.random.default_rng((self._seed, self._env_step))
            indices = generator.choice(indices, self._probe_states, replace=False)
        observations, actions = buffer.get(indices, "obs"), torch.as_tensor(buffer.get(indices, "act"))
        policy = cast(ProbabilisticActorPolicy, self.algorithm.policy)

        def view() -> PolicyView:
            was_training = policy.training
            policy.eval()
            try:
                outputs, _ = policy.actor(observations)
                seen = view_of(policy.dist_fn(outputs), actions.to(next(policy.parameters()).device))
            finally:
                policy.train(was_training)
            if seen.kind is not None and seen.kind.is_continuous and policy.action_bound_method == "clip":
                seen = dataclasses.replace(seen, greedy_actions=seen.greedy_actions.clamp(-1.0, 1.0))
            return seen

        return view

    def _follow_env_steps(self, scheduler: object) -> None:
        """Makes Tianshou's linear schedule one of env steps: it counts updates and would go on below a rate of 0."""
        if isinstance(scheduler, LambdaLR):
            for number, function in enumerate(scheduler.lr_lambdas):
                owner = getattr(function, "__self__", None)
                if isinstance(owner, LRSchedulerFactoryLinear._LRLambda):  # pyright: ignore[reportPrivateUsage]
                    scheduler.lr_lambdas[number] = self._linear(float(owner.max_update_num))
                    return
        warnings.warn(
            f"{type(scheduler).__name__} counts updates, and a batch that moves makes another number of them; take "
            "LRSchedulerFactoryLinear, which then follows env steps",
            stacklevel=3,
        )

    def _linear(self, planned_updates: float) -> Callable[[int], float]:
        """1 − updates of the planned size / planned updates: with a batch of that size, to the bit what it was."""
        return lambda _: max(0.0, 1.0 - self._env_steps_with_this / self._planned_env_steps / planned_updates)

    def _log(self, reading: float | None) -> None:
        data: dict[str, Any] = {"batch/n_steps": self.controller.horizon}
        data["batch/size"] = self.params.collection_step_num_env_steps
        if reading is not None:
            data["batch/reading"] = reading
        if self.controller.thresholds is not None:
            data["batch/calm_reading"], data["batch/volatile_reading"] = self.controller.thresholds
        self._logger.write("batch/env_step", self._env_steps_with_this, data)

    def state_dict(self) -> dict[str, Any]:
        return self.controller.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.controller.load_state_dict(state)
        self._set_length()


class AdaptiveTrainer(BatchTrainer):
    """Rollouts of `min_steps` to `max_steps` of each env: short while updates change the policy a lot, long once it
    has calmed down.

    Args:
        algorithm: an on-policy one.
        params: as for OnPolicyTrainer; `collection_step_num_env_steps` plays no part but in a linear learning rate.
        min_steps: the shortest rollout, and the first.
        max_steps: the longest rollout; the buffer must have room for it.
        signal: what is measured: `kl_divergence`, `behavioral_divergence`, `effective_sample_size` or an object.
        every: a reading at every so many updates; by default at each that ends another 512 env steps, which is every
            update where rollouts are that long. More is cheaper and slower.
        probe_states: most states of a rollout that a reading looks at.
        seed: of the choice of these states.
        options: calm_reading and volatile_reading, or without the two calibration_readings and settling_readings
            from which they are found; smoothing, history, interpolation, warmup_readings.
    """

    def __init__(
        self,
        algorithm: OnPolicyAlgorithm,
        params: OnPolicyTrainerParams,
        *,
        min_steps: int,
        max_steps: int,
        signal: Signal | str = "kl_divergence",
        every: int | None = None,
        probe_states: int = PROBE_STATES,
        seed: int = 0,
        **options: Any,
    ) -> None:
        controller = adaptive_controller(min_steps, max_steps, signal, every, **options)
        super().__init__(
            algorithm, params, controller, max_steps=max_steps, every=every, probe_states=probe_states, seed=seed
        )


class MeasureTrainer(BatchTrainer):
    """Changes nothing and measures: `controller.thresholds` suits this training, `controller.summary()` says so.

    Args:
        algorithm: an on-policy one.
        params: as for OnPolicyTrainer.
        signal: as above.
        every: as above.
        probe_states: as above.
        seed: as above.
        calibration: calibration_readings and settling_readings.
    """

    def __init__(
        self,
        algorithm: OnPolicyAlgorithm,
        params: OnPolicyTrainerParams,
        *,
        signal: Signal | str = "kl_divergence",
        every: int | None = None,
        probe_states: int = PROBE_STATES,
        seed: int = 0,
        **calibration: Any,
    ) -> None:
        steps = _steps_per_env(params)
        controller = BatchController.measuring(steps, signal=signal, every=1 if every is None else every, **calibration)
        super().__init__(
            algorithm, params, controller, max_steps=steps, every=every, probe_states=probe_states, seed=seed
        )


def _steps_per_env(params: OnPolicyTrainerParams) -> int:
    if params.collection_step_num_env_steps is None:
        raise ConfigError("collection_step_num_env_steps must be set: rollouts are counted in steps, not in episodes")
    return -(-params.collection_step_num_env_steps // params.training_collector.env_num)


def _require_room(params: OnPolicyTrainerParams, max_steps: int) -> None:
    """A buffer that is too small for a rollout overwrites its beginning without a word."""
    _steps_per_env(params)
    buffer = params.training_collector.buffer
    room = buffer.maxsize // getattr(buffer, "buffer_num", 1)
    if room < max_steps:
        needed = max_steps * getattr(buffer, "buffer_num", 1)
        raise ConfigError(
            f"max_steps must fit into the buffer, got {max_steps} and room for {room} steps of each env; "
            f"make it a VectorReplayBuffer of {needed}"
        )
