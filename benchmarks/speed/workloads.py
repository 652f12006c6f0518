"""What is measured, and what would be good enough."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from swell.config.run_config import RunConfig
from swell.presets import make_config

from .table import Bar

EXTRAS = {
    "ale_py": "ale-py is missing: pip install swell-rl[atari]",
    "minatar": "minatar is missing: pip install swell-rl[minatar]",
    "mujoco": "mujoco is missing: pip install swell-rl[mujoco]",
    "stable_baselines3": "stable-baselines3 is missing: pip install swell-rl[bench]",
}
"""One line for each package that a row may need."""

BY_AUTOGRAD = {"path autograd": {"path": "autograd"}}
"""The variant that shows what the compiled kernels bring."""
COMPILED_ENV = {"compiled env": {"backend": "compiled"}}

AHEAD = Bar("at least", 1.0)
"""What is asked of us beside a peer for which no other bar is set."""


@dataclass(frozen=True)
class Workload:
    """The same env, network shape, batch, epochs and minibatches for every side."""

    name: str
    title: str
    env: str
    options: Mapping[str, Any]
    """What differs from RunConfig's defaults for this env."""
    peers: tuple[str, ...]
    """The sides that `make bench` runs by itself beside ours: `plain`, `sb3`."""
    bars: Mapping[str, Bar]
    """By how the label of a peer begins."""
    needs: str | None = None
    """The package that steps the env."""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Runs of ours with other options, beside the one that is like the peers'."""
    limit_bar: Bar | None = None
    """On the share of the limit."""
    command_bars: Mapping[str, Bar] = field(default_factory=dict[str, Bar])
    """On the time of our whole command as a share of the peer's; by how the label of a peer begins."""

    def config(self, **changes: Any) -> RunConfig:
        return make_config(self.env, **{**self.options, **changes})

    def bar(self, label: str) -> Bar | None:
        """What is asked of us beside this peer; nothing beside our own plain loop."""
        return None if label.startswith("plain") else bar_of(label, self.bars, AHEAD)

    def command_bar(self, label: str) -> Bar | None:
        return bar_of(label, self.command_bars, None)


def bar_of(label: str, bars: Mapping[str, Bar], otherwise: Bar | None) -> Bar | None:
    """The bar with whose name the label of a peer begins."""
    return next((bar for name, bar in bars.items() if label.lower().startswith(name.lower())), otherwise)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="atari",
            title="Atari Breakout, PQN: 128 envs × 32, 4 minibatches × 2 epochs, Nature CNN, LayerNorm over the map",
            env="ALE/Breakout-v5",
            options={"preset": "pqn-atari", "minibatches": 4, "norm_over": "map", "total_env_steps": 10_000_000},
            peers=("plain",),
            bars={"CleanRL": Bar("at least", 1.8)},
            needs="ale_py",
            variants={"LayerNorm over channels": {"norm_over": "channels"}},
            limit_bar=Bar("at least", 0.8),
        ),
        Workload(
            name="cartpole-pqn",
            title="CartPole, PQN: 32 envs × 64, 16 minibatches × 4 epochs, 2 × 256 (purejaxql's settings)",
            env="CartPole-v1",
            options={"preset": "pqn-classic"},
            peers=("plain",),
            bars={"purejaxql": Bar("at least", 2.0)},
            variants=BY_AUTOGRAD,
            command_bars={"purejaxql": Bar("at most", 0.6)},
        ),
        Workload(
            name="minatar",
            title="MinAtar Breakout, PQN: 128 envs × 32, 32 minibatches × 2 epochs (purejaxql's settings)",
            env="MinAtar/Breakout-v1",
            options={"preset": "pqn-minatar"},
            peers=("plain",),
            bars={"purejaxql": Bar("at least", 5.0)},
            needs="minatar",
            variants={**BY_AUTOGRAD, "2 threads": {"threads": 2}},
        ),
        Workload(
            name="cartpole-ppo",
            title="CartPole, PPO: 8 envs × 32, one minibatch of 256, 20 epochs, 2 × 64 (settings of SB3's zoo)",
            env="CartPole-v1",
            options={
                "preset": "ppo-classic",
                "backend": "gymnasium",  # the env of SB3
                "total_env_steps": 100_000,
                "num_envs": 8,
                "horizon": 32,
                "minibatches": 1,
                "epochs": 20,
                "discount": 0.98,
                "trace_decay": 0.8,
                "value_coefficient": 0.5,
            },
            peers=("sb3",),
            bars={"PureJaxRL": Bar("at least", 1.2), "SB3": Bar("at least", 9.0)},
            variants={**BY_AUTOGRAD, **COMPILED_ENV},
        ),
        Workload(
            name="cartpole-ppo-own",
            title="CartPole, PPO: 4 envs × 128, 4 minibatches × 4 epochs, 2 × 64 (PureJaxRL's settings), compiled env",
            env="CartPole-v1",
            options={
                "preset": "ppo-classic",
                "backend": "compiled",  # PureJaxRL compiles its env too
                "total_env_steps": 500_000,
                "num_envs": 4,
                "horizon": 128,
                "minibatches": 4,
                "epochs": 4,
                "learning_rate": 2.5e-4,
                "entropy_coefficient": 0.01,
                "value_coefficient": 0.25,  # its 0.5 is on half the square
                "value_clip_range": 0.2,
            },
            peers=(),
            bars={"PureJaxRL": Bar("at least", 1.3)},
            variants={**BY_AUTOGRAD, "gymnasium env": {"backend": "gymnasium"}},
            command_bars={"PureJaxRL": Bar("at most", 1.0)},
        ),
        Workload(
            name="halfcheetah-ppo",
            title="HalfCheetah-v5, PPO: 1 env × 2048, 32 minibatches × 10 epochs, 2 × 64 (CleanRL's settings)",
            env="HalfCheetah-v5",
            options={"preset": "ppo-mujoco", "num_envs": 1, "horizon": 2048, "minibatches": 32},
            peers=("sb3",),
            bars={"SB3": Bar("at least", 6.0), "CleanRL": Bar("at least", 6.0)},
            needs="mujoco",
            variants=BY_AUTOGRAD,
            limit_bar=Bar("at least", 0.5),
        ),
    )
}

OTHER_ROWS = ("horizon", "measure", "memory", "start", "ranks")
"""Rows about ourselves alone."""


def missing(package: str | None) -> str | None:
    """The line to print where a package is not there."""
    return None if package is None or find_spec(package) is not None else EXTRAS[package]
