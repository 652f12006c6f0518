"""PPO of Stable-Baselines3, as its zoo runs CartPole and with CleanRL's settings for HalfCheetah."""

from collections.abc import Callable
from typing import Any, cast

import stable_baselines3
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from .sides import CORES, IteratedSide, fastest_threads

VERSION = stable_baselines3.__version__


def falling(start: float) -> Callable[[float], float]:
    """What the zoo writes as lin_…: proportional to the part of the run that remains."""
    return lambda remaining: remaining * start


def cartpole() -> tuple[VecEnv, dict[str, Any], int]:
    """Envs, arguments of PPO and total steps: `CartPole-v1` in hyperparams/ppo.yml of rl-baselines3-zoo."""
    settings = {
        "n_steps": 32,
        "batch_size": 256,
        "n_epochs": 20,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "ent_coef": 0.0,
        "learning_rate": falling(0.001),
        "clip_range": falling(0.2),
    }
    return make_vec_env("CartPole-v1", n_envs=8, seed=1), settings, 100_000


def halfcheetah() -> tuple[VecEnv, dict[str, Any], int]:
    """The defaults of CleanRL's ppo_continuous_action.py; SB3's own network is the same, 2 × 64 with tanh for each."""
    settings = {
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "ent_coef": 0.0,
        "learning_rate": falling(3e-4),
        "clip_range": 0.2,
        "clip_range_vf": 0.2,
    }
    return VecNormalize(make_vec_env("HalfCheetah-v5", n_envs=1, seed=1)), settings, 1_000_000


MAKERS = {"cartpole-ppo": cartpole, "halfcheetah-ppo": halfcheetah}


class StableBaselines(IteratedSide):
    """What `learn` does, an iteration at a time and without its log, with the number of threads that suits it best."""

    def __init__(self, workload: str) -> None:
        envs, settings, self._total = MAKERS[workload]()
        self._model = PPO("MlpPolicy", envs, **settings, seed=1, device="cpu")
        self._begin()

    def _begin(self) -> None:
        _, self._callback = self._model._setup_learn(self._total)  # pyright: ignore[reportPrivateUsage]

    def warm_up(self) -> None:
        self.threads = fastest_threads(self.block, (1, CORES) if CORES > 1 else (1,))

    def prepare(self) -> None:
        if self._model.num_timesteps >= self._total:
            self._begin()  # beyond the end its learning rate would be negative

    def iterate(self) -> float:
        model = self._model
        before = model.num_timesteps
        model.collect_rollouts(cast(VecEnv, model.env), self._callback, model.rollout_buffer, model.n_steps)
        model._update_current_progress_remaining(model.num_timesteps, self._total)  # pyright: ignore[reportPrivateUsage]
        model.train()
        return model.num_timesteps - before
