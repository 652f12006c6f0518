"""Small models of every on-policy algorithm of Stable-Baselines3 and sb3-contrib, and what is seen of training."""

import gymnasium
import numpy as np
import torch
from sb3_contrib import TRPO, MaskablePPO, RecurrentPPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete, InvalidActionEnvMultiBinary
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import IdentityEnvMultiBinary, IdentityEnvMultiDiscrete
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from swell.batch.controller import BatchController
from swell.batch.scalers import HorizonScaler


def cart_pole_in_a_dict():
    env = gymnasium.make("CartPole-v1")
    space = gymnasium.spaces.Dict({"cart": env.observation_space, "pole": env.observation_space})
    split = gymnasium.wrappers.TransformObservation(env, lambda seen: {"cart": seen, "pole": -seen}, space)
    return Monitor(split)


NUM_ENVS, N_STEPS = 4, 16
SHARED = {"n_steps": N_STEPS, "batch_size": 32, "n_epochs": 2}
KINDS = {
    "PPO": (PPO, "CartPole-v1", SHARED),
    "PPO with gSDE": (PPO, "Pendulum-v1", {**SHARED, "use_sde": True, "sde_sample_freq": 4}),
    "PPO on Pendulum": (PPO, "Pendulum-v1", SHARED),
    "PPO on MultiDiscrete": (PPO, lambda: IdentityEnvMultiDiscrete(3), SHARED),
    "PPO on MultiBinary": (PPO, lambda: IdentityEnvMultiBinary(3), SHARED),
    "PPO on a Dict": (PPO, cart_pole_in_a_dict, SHARED),
    "A2C": (A2C, "CartPole-v1", {"n_steps": N_STEPS}),
    "TRPO": (TRPO, "CartPole-v1", {"n_steps": N_STEPS, "batch_size": 32, "n_critic_updates": 2}),
    "RecurrentPPO": (RecurrentPPO, "CartPole-v1", SHARED),
    "MaskablePPO": (MaskablePPO, lambda: InvalidActionEnvDiscrete(dim=6, n_invalid_actions=2), SHARED),
    "MaskablePPO on MultiBinary": (
        MaskablePPO,
        lambda: InvalidActionEnvMultiBinary(dims=3, n_invalid_actions=1),
        SHARED,
    ),
}


def make_envs(env, num_envs=NUM_ENVS):
    if isinstance(env, str):
        return make_vec_env(env, num_envs, seed=5)
    return DummyVecEnv([lambda number=number: seeded(env(), number) for number in range(num_envs)])


def seeded(env, seed):
    """These envs draw their states from their spaces, which no reset seeds."""
    env.action_space.seed(seed)
    env.observation_space.seed(seed)
    return env


def make_model(kind, algorithm=None, envs=None, **changes):
    """`algorithm` takes the place of that of the kind, such as a subclass of it."""
    plain, env, options = KINDS[kind]
    policy = {"RecurrentPPO": "MlpLstmPolicy", "PPO on a Dict": "MultiInputPolicy"}.get(kind, "MlpPolicy")
    if kind == "RecurrentPPO":
        options = {**options, "policy_kwargs": {"lstm_hidden_size": 8}}
    envs = make_envs(env) if envs is None else envs
    envs.seed(5)
    return (algorithm or plain)(policy, envs, seed=3, device="cpu", **{**options, **changes})


def weights(model):
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def are_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Scripted(HorizonScaler):
    """Says one length after another, whatever the readings are."""

    def __init__(self, *lengths):
        super().__init__()
        self.lengths, self.readings = lengths, []

    def horizon(self, progress):
        return float(self.lengths[min(len(self.readings), len(self.lengths) - 1)])

    def adjust(self, reading):
        self.readings.append(reading)


def scripted(*lengths):
    return BatchController(scaler=Scripted(*lengths))


class Record(BaseCallback):
    """What is in the buffer at the end of each rollout, and how large the minibatches of each update are."""

    def __init__(self):
        super().__init__()
        self.lengths, self.env_steps, self.advantages, self.minibatches = [], [], [], []

    def _on_training_start(self):
        get = self.model.rollout_buffer.get

        def counting(batch_size=None):
            for samples in get(batch_size):
                mask = getattr(samples, "mask", None)  # of recurrent policies, whose sequences are padded
                self.minibatches[-1].append(len(samples.actions) if mask is None else int(mask.sum()))
                yield samples

        self.model.rollout_buffer.get = counting

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        assert buffer.full and len(buffer.rewards) == buffer.buffer_size
        self.lengths.append(buffer.buffer_size)
        self.env_steps.append(self.num_timesteps)
        self.advantages.append(buffer.advantages.copy())
        self.minibatches.append([])

    def _on_training_end(self):
        del self.model.rollout_buffer.get


def advantages_by_hand(rewards, values, next_values, ended, gamma, lam):
    """Â_t = Σ_k (γλ)^k δ_{t+k} up to the end of the episode, as a sum; all [T, N] in float64.

    `next_values` are 0 where there is nothing to come.
    """
    errors = rewards + gamma * next_values - values
    found = np.zeros_like(errors)
    for start in range(len(errors)):
        alive = np.ones(errors.shape[1])
        for step in range(start, len(errors)):
            found[start] += (gamma * lam) ** (step - start) * alive * errors[step]
            alive = alive * ~ended[step]
    return found
