"""The runs that faults are put into: every learner, every family of envs, workers; a second or two of work each."""

from dataclasses import dataclass, field, fields
from typing import Any

from kill import small_config

from swell.config.run_config import RunConfig
from swell.presets import make_config


@dataclass(frozen=True)
class Case:
    """An env with options, as a person would type them."""

    name: str
    env: str
    options: dict[str, Any] = field(default_factory=dict)
    is_exact: bool = True
    """Whether Swell promises the same bits after a resume; if not, the run goes on with new episodes."""

    def flags(self) -> list[str]:
        """The options of a short, lively run."""
        config = small_config(self.env, **self.options)
        kinds = {name: getattr(config, name) for name in ("algorithm", "preset")}
        usual = make_config(self.env, **kinds)
        changed = [each.name for each in fields(RunConfig) if getattr(config, each.name) != getattr(usual, each.name)]
        named = ["algorithm", *(name for name in changed if name in config.read_options and name != "algorithm")]
        return [word for name in named for word in flag(name, getattr(config, name))]


def flag(name: str, value: Any) -> list[str]:
    option = "steps" if name == "total_env_steps" else name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", *map(str, value if isinstance(value, tuple) else (value,))]


SHORT = {"total_env_steps": 3000, "checkpoint_every": 400, "evaluate_every": 1300, "evaluation_episodes": 2}
POLICY = {
    **SHORT,
    "scaler": "adaptive",
    "min_horizon": 4,
    "max_horizon": 16,
    "measure_every": 2,
    "epochs": 2,
    "learning_rate": 1e-2,
    "hidden": (16,),
}
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}
PHASES = {"phase_env_steps": 600, "auxiliary_epochs": 2, "auxiliary_minibatch_size": 64}
ATARI = {
    "total_env_steps": 480,
    "num_envs": 4,
    "checkpoint_every": 150,
    "evaluate_every": 0,
    "evaluation_episodes": 0,
    "min_horizon": 4,
    "max_horizon": 8,
}

_ALL = (
    Case("pqn", "CartPole-v1"),
    Case("pqn, noise scale", "CartPole-v1", {**SHORT, "scaler": "noise-scale"}),
    Case("pqn, interval window", "Acrobot-v1", {**SHORT, "window": "interval"}),
    Case("pqn, compiled envs", "CartPole-v1", {"backend": "compiled"}),
    Case("pqn, MinAtar", "MinAtar/Breakout-v1", SHORT),
    Case("pqn, Atari by replay", "ALE/Pong-v5", ATARI),
    Case("pqn, worker processes", "CartPole-v1", {**SHORT, "num_envs": 4, "async_envs": True}),
    Case("pqn, action masks", "Taxi-v4", SHORT),
    Case("ppo", "CartPole-v1", {**POLICY, "algorithm": "ppo"}),
    Case("ppo, autograd", "CartPole-v1", {**POLICY, "algorithm": "ppo", "path": "autograd"}),
    Case("ppo, stale rollouts", "CartPole-v1", {**POLICY, "algorithm": "ppo", "staleness": 2}),
    Case("ppo, normalized", "Pendulum-v1", {**POLICY, "algorithm": "ppo", **NORMALIZED}),
    Case("ppo, worker processes", "Pendulum-v1", {**POLICY, "algorithm": "ppo", "num_envs": 4, "async_envs": True}),
    Case("ppo, MinAtar", "MinAtar/Asterix-v1", {**POLICY, "algorithm": "ppo"}),
    Case("ppo, MuJoCo", "HalfCheetah-v5", {**POLICY, "algorithm": "ppo", "num_envs": 4, **NORMALIZED}),
    Case("ppo, Box2D", "LunarLander-v3", {**POLICY, "algorithm": "ppo"}, is_exact=False),
    Case("ppo-ewma", "CartPole-v1", {**POLICY, "algorithm": "ppo-ewma", "advantage_decay": 0.9, "invariance": "on"}),
    Case("ppg", "CartPole-v1", {**POLICY, "algorithm": "ppg", "advantage_decay": 0.9, **PHASES}),
    Case("ppg-ewma", "Pendulum-v1", {**POLICY, "algorithm": "ppg-ewma", **PHASES, **NORMALIZED}),
    Case("ess", "CartPole-v1", {**POLICY, "algorithm": "ess", "scaler": "noise-scale", "batch_per_noise_scale": 24.0}),
    Case(
        "ess, stale rollouts",
        "Pendulum-v1",
        {**POLICY, "algorithm": "ess", "staleness": 1, "ess_scope": "minibatch", **NORMALIZED},
    ),
)
CASES = {case.name: case for case in _ALL}

FEW = {"total_env_steps": 600, "checkpoint_every": 250, "evaluate_every": 500}
FEW_ROLLOUTS = Case("ppo, a few rollouts", "CartPole-v1", {**POLICY, "algorithm": "ppo", **FEW})
"""So short that each of its writes can fail by turn."""
SHORT_PQN = Case("pqn, short", "CartPole-v1", {**SHORT, "total_env_steps": 1500, "evaluate_every": 500})


def soak(env_steps: int) -> Case:
    """A long run with worker processes, saved every hundredth."""
    lengths = {"total_env_steps": env_steps, "checkpoint_every": env_steps // 100, "evaluate_every": env_steps // 10}
    options = {**POLICY, "algorithm": "ppo", "num_envs": 4, "async_envs": True, "learning_rate": 1e-3, **lengths}
    return Case(f"soak of {env_steps} env steps", "CartPole-v1", options)
