"""PQN as single-file scripts write it, to compare with: the plain side of `make bench`.

    python -m benchmarks.plain_pqn cartpole-pqn --seconds 10

Float32 observations in storage, eager, RAdam over separate parameters, contiguous NCHW, one tensor at a time. It learns
what ours learns: same envs, network, batch, epochs and minibatches (tests/benchmarks holds that).
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

EnvStep = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Observations, rewards, and where an episode ended; new episodes start within the step."""


@dataclass(frozen=True)
class Settings:
    """One workload; the names are those of RunConfig."""

    env: str
    total_env_steps: int
    num_envs: int
    horizon: int
    minibatches: int
    epochs: int
    learning_rate: float
    trace_decay: float
    epsilon_end: float
    epsilon_fraction: float
    reward_scale: float = 1.0
    loss_coefficient: float = 0.5
    anneal_learning_rate: bool = True
    discount: float = 0.99
    max_gradient_norm: float = 10.0


SETTINGS = {
    "atari": Settings(
        "ALE/Breakout-v5", 10_000_000, 128, 32, 4, 2, 2.5e-4, 0.65, 0.001, 0.1, anneal_learning_rate=False
    ),
    "cartpole-pqn": Settings("CartPole-v1", 500_000, 32, 64, 16, 4, 1e-4, 0.95, 0.2, 0.2, reward_scale=0.1),
    "minatar": Settings("MinAtar/Breakout-v1", 10_000_000, 128, 32, 32, 2, 5e-4, 0.65, 0.05, 0.1),
}


class Pixels(nn.Module):
    """Bytes to numbers in [0, 1]."""

    def forward(self, images: Tensor) -> Tensor:
        return images / 255.0


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each pixel of [B, C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def make_network(env: str, shape: tuple[int, ...], num_actions: int) -> nn.Sequential:
    """LayerNorm over the whole map for Atari, as CleanRL has it, and over channels for MinAtar, as the PQN authors."""
    if env.startswith("ALE/"):
        images = [
            Pixels(),
            *(nn.Conv2d(shape[0], 32, 8, 4), nn.LayerNorm([32, 20, 20]), nn.ReLU()),
            *(nn.Conv2d(32, 64, 4, 2), nn.LayerNorm([64, 9, 9]), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3, 1), nn.LayerNorm([64, 7, 7]), nn.ReLU()),
        ]
        return nn.Sequential(*images, nn.Flatten(), *dense(64 * 7 * 7, 512), nn.Linear(512, num_actions))
    if env.startswith("MinAtar/"):
        images = [nn.Conv2d(shape[0], 16, 3, 1), ChannelNorm(16, eps=1e-6), nn.ReLU()]
        return nn.Sequential(*images, nn.Flatten(), *dense(16 * 8 * 8, 128), nn.Linear(128, num_actions))
    return nn.Sequential(*dense(shape[0], 256, 256), nn.Linear(256, num_actions))


def dense(*widths: int) -> list[nn.Module]:
    """Linear, LayerNorm, ReLU for each step from one width to the next."""
    blocks = [(nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU()) for inputs, outputs in pairwise(widths)]
    return [layer for block in blocks for layer in block]


def make_envs(settings: Settings) -> tuple[np.ndarray, int, Callable[[np.ndarray], EnvStep]]:
    """First observations, number of actions, and the function that steps."""
    if settings.env.startswith("MinAtar/"):
        from swell.envs import EnvBatch
        from swell.envs.minatar import MinAtarEnvs

        games = MinAtarEnvs(EnvBatch(settings.env, num_envs=settings.num_envs, seed=1))

        def step_games(actions: np.ndarray) -> EnvStep:
            step = games.step(actions)
            return step.observations, step.rewards, step.terminated | step.truncated

        return games.reset(), int(games.action_space.n), step_games  # pyright: ignore[reportAttributeAccessIssue]

    import gymnasium
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    if settings.env.startswith("ALE/"):
        from ale_py.vector_env import AtariVectorEnv

        envs = AtariVectorEnv(
            "breakout", settings.num_envs, life_loss_info=True, autoreset_mode=AutoresetMode.SAME_STEP
        )
    else:
        makers = [lambda: gymnasium.make(settings.env)] * settings.num_envs
        envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)

    def step_envs(actions: np.ndarray) -> EnvStep:
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        return observations, rewards, terminated | truncated

    return envs.reset(seed=1)[0], int(envs.single_action_space.n), step_envs  # pyright: ignore[reportAttributeAccessIssue]


def train(settings: Settings) -> Iterator[int]:
    """Collects and learns for ever; yields the env steps made so far, once an iteration."""
    first, num_actions, step_envs = make_envs(settings)
    shape, horizon, num_envs = first.shape[1:], settings.horizon, settings.num_envs
    network = make_network(settings.env, shape, num_actions)
    optimizer = torch.optim.RAdam(network.parameters(), lr=settings.learning_rate)
    observations = torch.zeros((horizon, num_envs, *shape))
    actions = torch.zeros((horizon, num_envs), dtype=torch.long)
    rewards, ended, values = (torch.zeros((horizon, num_envs)) for _ in range(3))
    current = torch.tensor(first, dtype=torch.float32)
    batch, env_steps = horizon * num_envs, 0
    while True:
        progress = min(env_steps / settings.total_env_steps, 1.0)
        if settings.anneal_learning_rate:
            optimizer.param_groups[0]["lr"] = settings.learning_rate * (1.0 - progress)
        epsilon = max(settings.epsilon_end, 1.0 - (1.0 - settings.epsilon_end) * progress / settings.epsilon_fraction)
        for step in range(horizon):
            observations[step] = current
            with torch.no_grad():
                values[step], greedy = network(current).max(dim=1)
            random = torch.randint(num_actions, (num_envs,))
            actions[step] = torch.where(torch.rand(num_envs) < epsilon, random, greedy)
            following, reward, over = step_envs(actions[step].numpy())
            current = torch.tensor(following, dtype=torch.float32)
            rewards[step] = settings.reward_scale * torch.tensor(reward, dtype=torch.float32)
            ended[step] = torch.tensor(over, dtype=torch.float32)
        env_steps += batch

        returns = torch.zeros_like(rewards)
        with torch.no_grad():
            following_value = following_return = network(current).amax(dim=1)
        for step in reversed(range(horizon)):
            mixed = settings.trace_decay * following_return + (1.0 - settings.trace_decay) * following_value
            returns[step] = rewards[step] + settings.discount * (1.0 - ended[step]) * mixed
            following_value, following_return = values[step], returns[step]

        states, taken, targets = observations.flatten(0, 1), actions.flatten(), returns.flatten()
        for _ in range(settings.epochs):
            for chosen in torch.randperm(batch).chunk(settings.minibatches):
                q_values = network(states[chosen]).gather(1, taken[chosen].unsqueeze(1)).squeeze(1)
                loss = settings.loss_coefficient * nn.functional.mse_loss(q_values, targets[chosen])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), settings.max_gradient_norm)
                optimizer.step()
        yield env_steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=SETTINGS)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to train, after one iteration of warm-up")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    loop = train(SETTINGS[given.workload])
    warm, started = next(loop), time.perf_counter()
    for env_steps in loop:
        seconds = time.perf_counter() - started
        if seconds >= given.seconds:
            print(f"steps_per_second: {(env_steps - warm) / seconds:.1f}")
            return


if __name__ == "__main__":
    main()
