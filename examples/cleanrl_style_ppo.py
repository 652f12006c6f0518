"""PPO in one file, in the style of CleanRL, with a batch that Swell adapts.

    python examples/cleanrl_style_ppo.py --total-steps 100000 --seed 1

Nothing here but `swell.BatchController` comes from Swell; the lines that it takes are marked `# swell`. Buffers are
allocated once for the longest rollout, and each rollout is a slice of them.
"""

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import swell  # swell


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    """A policy and a value, each with a network of its own."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(
            layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, gain=0.01)
        )
        self.critic = nn.Sequential(layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, gain=1.0))

    def value(self, observations: torch.Tensor) -> torch.Tensor:
        return self.critic(observations).squeeze(-1)


def advantages_of(
    rewards: torch.Tensor, values: torch.Tensor, ended: torch.Tensor, last_value: torch.Tensor, gamma: float, lam: float
) -> torch.Tensor:
    """Generalized advantages; [T, N]."""
    advantages = torch.zeros_like(rewards)
    following, next_value = torch.zeros_like(last_value), last_value
    for step in reversed(range(rewards.shape[0])):
        error = rewards[step] + gamma * next_value * ~ended[step] - values[step]
        following = error + gamma * lam * ~ended[step] * following
        advantages[step], next_value = following, values[step]
    return advantages


def train(
    env_id: str = "CartPole-v1",
    total_steps: int = 100_000,
    num_envs: int = 8,
    num_steps: int = 128,
    adaptive: bool = True,
    epochs: int = 4,
    minibatches: int = 4,
    learning_rate: float = 1e-3,
    clip: float = 0.2,
    seed: int = 1,
) -> dict[str, list[float]]:
    """Returns what was logged: `steps`, `horizon` and the mean `return` of the last 50 episodes."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    envs = gymnasium.make_vec(
        env_id,
        num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    inputs, num_actions = int(np.prod(envs.single_observation_space.shape)), int(envs.single_action_space.n)
    agent = Agent(inputs, num_actions)
    optimizer = torch.optim.Adam(agent.parameters(), learning_rate, eps=1e-5)
    controller = swell.BatchController(min_horizon=32, max_horizon=4 * num_steps, smoothing=0.3)  # swell
    longest = 4 * num_steps if adaptive else num_steps  # swell
    shape = (longest, num_envs)
    observations = torch.zeros(*shape, inputs)
    actions, ended = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    log_probs, rewards, values = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)

    log: dict[str, list[float]] = {"steps": [], "horizon": [], "return": []}
    finished: list[float] = []
    returns_so_far = np.zeros(num_envs)
    observation, _ = envs.reset(seed=seed)
    steps = 0
    while steps < total_steps:
        horizon = controller.horizon if adaptive else num_steps  # swell
        for step in range(horizon):
            with torch.no_grad():
                observations[step] = torch.as_tensor(observation)
                policy = Categorical(logits=agent.actor(observations[step]))
                actions[step] = policy.sample()
                log_probs[step], values[step] = policy.log_prob(actions[step]), agent.value(observations[step])
            observation, reward, terminated, truncated, _ = envs.step(actions[step].numpy())
            rewards[step] = torch.as_tensor(reward)
            ended[step] = torch.as_tensor(terminated | truncated)
            returns_so_far += reward
            finished.extend(returns_so_far[terminated | truncated].tolist())
            returns_so_far[terminated | truncated] = 0.0
        steps += horizon * num_envs

        with torch.no_grad():
            last_value = agent.value(torch.as_tensor(observation))
        rows = slice(0, horizon)
        advantages = advantages_of(rewards[rows], values[rows], ended[rows], last_value, 0.99, 0.95)
        batch = {
            "observations": observations[rows].flatten(0, 1),
            "actions": actions[rows].flatten(),
            "log_probs": log_probs[rows].flatten(),
            "advantages": advantages.flatten(),
            "returns": (advantages + values[rows]).flatten(),
        }
        with controller.watch(lambda batch=batch: swell.categorical_view(agent.actor(batch["observations"]))):  # swell
            update(agent, optimizer, batch, epochs, minibatches, clip)
        log["steps"].append(steps)
        log["horizon"].append(horizon)
        log["return"].append(float(np.mean(finished[-50:])) if finished else 0.0)
    envs.close()
    return log


def update(
    agent: Agent,
    optimizer: torch.optim.Adam,
    batch: dict[str, torch.Tensor],
    epochs: int,
    minibatches: int,
    clip: float,
) -> None:
    for _ in range(epochs):
        for chosen in torch.randperm(batch["actions"].shape[0]).tensor_split(minibatches):
            policy = Categorical(logits=agent.actor(batch["observations"][chosen]))
            ratios = (policy.log_prob(batch["actions"][chosen]) - batch["log_probs"][chosen]).exp()
            advantages = batch["advantages"][chosen]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            surrogate = torch.min(ratios * advantages, ratios.clamp(1 - clip, 1 + clip) * advantages).mean()
            errors = (agent.value(batch["observations"][chosen]) - batch["returns"][chosen]).square().mean()
            loss = -surrogate + 0.25 * errors
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixed", action="store_true", help="the same script with 128 steps each time")
    chosen = parser.parse_args()
    log = train(chosen.env, chosen.total_steps, seed=chosen.seed, adaptive=not chosen.fixed)
    for steps, horizon, score in list(zip(*log.values(), strict=True))[:: max(1, len(log["steps"]) // 20)]:
        print(f"{steps:>8,.0f} steps   horizon {horizon:>4.0f}   return {score:6.1f}")


if __name__ == "__main__":
    main()
