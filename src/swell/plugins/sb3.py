"""Stable-Baselines3 with a batch that grows as the policy settles: a callback, or classes without its lag.

    model = PPO("MlpPolicy", env)
    model.learn(1_000_000, callback=AdaptiveBatchCallback(min_steps=256, max_steps=4096))

For every on-policy algorithm of SB3 and sb3-contrib: PPO, A2C, TRPO, RecurrentPPO, MaskablePPO. Needs the extra `sb3`.
"""

from collections.abc import Callable
from typing import Any

from swell.batch.controller import BatchController
from swell.errors import ConfigError
from swell.plugins.options import adaptive_controller
from swell.types import Signal

try:
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

    from swell.plugins.sb3_batch import MovingBatch
except ImportError as error:
    raise ConfigError('swell.plugins.sb3 needs Stable-Baselines3: pip install "swell-rl[sb3]"') from error

PROBE_STATES = 1024
PROBES = {"probe_states": PROBE_STATES, "seed": 0}
"""The most states that a reading looks at, and the seed of their choice."""
OFFERED = "PPO, A2C, TRPO, RecurrentPPO or MaskablePPO"


class BatchCallback(BaseCallback):
    """A BatchController in SB3's loop; the two below make theirs by themselves.

    It reads and sets public attributes alone. SB3 asks for the length of a rollout before any callback can see what
    the update did, so a reading acts one rollout late. What it remembers is in `model.batch_state`, plain data that SB3
    saves as JSON with the model.
    """

    def __init__(
        self,
        make_controller: Callable[[OnPolicyAlgorithm], BatchController],
        *,
        every: int | None = 1,
        probe_states: int = PROBE_STATES,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self._make_controller = make_controller
        self._looks: dict[str, Any] = {"every": every, "probe_states": probe_states, "seed": seed}
        self._batch: MovingBatch | None = None
        self._finish: Callable[[], float | None] | None = None

    @property
    def batch(self) -> MovingBatch:
        """There is one as soon as training has begun."""
        if self._batch is None:
            raise ConfigError(f"{type(self).__name__} has no controller before learn() was called with it")
        return self._batch

    @property
    def controller(self) -> BatchController:
        return self.batch.controller

    def _on_training_start(self) -> None:
        name, model = type(self).__name__, self.model
        if not isinstance(model, OnPolicyAlgorithm):
            raise ConfigError(f"{name} needs an on-policy algorithm, got {type(model).__name__}; take {OFFERED}")
        if isinstance(model, AdaptiveBatch):
            raise ConfigError(
                f"{name} is for plain algorithms, and {type(model).__name__} has a batch that moves by itself"
            )
        if self.parent is not None:
            outer = type(self.parent).__name__
            raise ConfigError(
                f"{name} must not be inside {outer}, which shows it no rollouts; give learn() a list of both"
            )
        self._finish = None
        self._batch = MovingBatch(model, self._make_controller(model), **self._looks)
        self._batch.set_length()

    def _on_rollout_start(self) -> None:
        self.batch.log(self._read())
        self.batch.fit_buffer()

    def _on_rollout_end(self) -> None:
        self.controller.progress = min(1.0, self.num_timesteps / self.locals["total_timesteps"])
        self._finish = self.batch.look()
        self.batch.fit_minibatches()
        self.batch.set_length()

    def _on_training_end(self) -> None:
        self._read()  # of the last update, after which no rollout starts
        self.batch.set_length()
        self.batch.fit_buffer()  # a learn() without this callback goes on with this length

    def _on_step(self) -> bool:
        return True

    def _read(self) -> float | None:
        """The reading of the update that was looked at, once."""
        finish, self._finish = self._finish, None
        return None if finish is None else finish()


class AdaptiveBatchCallback(BatchCallback):
    """Rollouts of `min_steps` to `max_steps` of each env: short while updates change the policy a lot, long once it
    has calmed down. The model's own `n_steps` plays no part.

    Args:
        min_steps: the shortest rollout, and the first.
        max_steps: the longest rollout.
        signal: what is measured: `kl_divergence`, `behavioral_divergence`, `effective_sample_size` or an object.
        every: a reading at every so many updates; by default at each that ends another 512 env steps, which is every
            update where rollouts are that long. More is cheaper and slower.
        probe_states: most states of a rollout that a reading looks at.
        seed: of the choice of these states.
        verbose: as in every callback of SB3.
        options: calm_reading and volatile_reading, or without the two calibration_readings and settling_readings
            from which they are found; smoothing, history, interpolation, warmup_readings.
    """

    def __init__(
        self,
        min_steps: int,
        max_steps: int,
        signal: Signal | str = "kl_divergence",
        *,
        every: int | None = None,
        probe_states: int = PROBE_STATES,
        seed: int = 0,
        verbose: int = 0,
        **options: Any,
    ) -> None:
        def make(model: object = None) -> BatchController:
            return adaptive_controller(min_steps, max_steps, signal, every, **options)

        make()  # whatever is wrong is said here rather than when training begins
        super().__init__(make, every=every, probe_states=probe_states, seed=seed, verbose=verbose)


class MeasureBatchCallback(BatchCallback):
    """Changes nothing and measures; at the end of `learn` it says which thresholds suit this training.

    Args:
        signal: as above.
        every: as above.
        probe_states: as above.
        seed: as above.
        verbose: 1 prints the suggestion, which is also in `controller.thresholds`.
        calibration: calibration_readings and settling_readings.
    """

    def __init__(
        self,
        signal: Signal | str = "kl_divergence",
        *,
        every: int | None = None,
        probe_states: int = PROBE_STATES,
        seed: int = 0,
        verbose: int = 1,
        **calibration: Any,
    ) -> None:
        def make(model: OnPolicyAlgorithm) -> BatchController:
            return BatchController.measuring(
                model.n_steps, signal=signal, every=1 if every is None else every, **calibration
            )

        super().__init__(make, every=every, probe_states=probe_states, seed=seed, verbose=verbose)

    def _on_rollout_start(self) -> None:
        self.batch.log(self._read())

    def _on_rollout_end(self) -> None:
        self._finish = self.batch.look()

    def _on_training_end(self) -> None:
        self._read()
        if self.verbose:
            print(self.controller.summary())


class AdaptiveBatch(OnPolicyAlgorithm):
    """For any on-policy algorithm, `class AdaptiveTRPO(AdaptiveBatch, TRPO)`: each reading acts on the next rollout.

    `batch_settings` are the arguments of AdaptiveBatchCallback. They are saved with the model and come back with
    `load`; the file can also be loaded by the plain algorithm.
    """

    def __init__(self, *arguments: Any, batch_settings: dict[str, Any] | None = None, **named: Any) -> None:
        if isinstance(self, OffPolicyAlgorithm):
            raise ConfigError(f"AdaptiveBatch needs an on-policy algorithm, got {type(self).__name__}; take {OFFERED}")
        self.batch_settings = batch_settings
        super().__init__(*arguments, **named)

    def make_controller(self) -> BatchController:
        """From `batch_settings`; a scaler of your own goes in here."""
        if self.batch_settings is None:
            example = {"min_steps": 256, "max_steps": 4096}
            raise ConfigError(f"{type(self).__name__} needs batch_settings, such as {example}")
        settings: dict[str, Any] = {"min_steps": None, "max_steps": None, **self.batch_settings}
        return adaptive_controller(**{name: value for name, value in settings.items() if name not in PROBES})

    def _setup_model(self) -> None:
        super()._setup_model()
        controller = self.make_controller()
        given = self.batch_settings or {}
        probes = {name: given.get(name, PROBES[name]) for name in PROBES}
        every = given.get("every") if given else 1  # without settings the controller is the user's own, and counts
        self._batch = MovingBatch(self, controller, every=every, **probes)
        self._batch.set_length()
        self._batch.fit_buffer()

    def train(self) -> None:
        batch = self._batch
        batch.controller.progress = 1.0 - self._current_progress_remaining
        batch.fit_minibatches()
        finish = batch.look()
        super().train()
        reading = finish()
        batch.set_length()
        batch.log(reading)
        batch.fit_buffer()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_batch"]


class AdaptivePPO(AdaptiveBatch, PPO):
    """PPO with an adaptive batch, without the lag of a callback."""


class AdaptiveA2C(AdaptiveBatch, A2C):
    """A2C with an adaptive batch, without the lag of a callback."""
