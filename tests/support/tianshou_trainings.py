"""Small trainings of Tianshou's PPO, and what is seen of them."""

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch.distributions import Independent, Normal

NUM_ENVS = 4


def training(env="CartPole-v1", steps=16, total=4 * 16 * NUM_ENVS, buffer=4_000, schedule=None, **changes):
    """An algorithm and the params of its trainer, seeded."""
    torch.manual_seed(1)
    np.random.seed(1)
    envs = DummyVectorEnv([lambda: gymnasium.make(env) for _ in range(NUM_ENVS)])
    envs.seed(1)
    space = envs.action_space[0]
    shape = envs.observation_space[0].shape
    bodies = [Net(state_shape=shape, hidden_sizes=[16]) for _ in range(2)]
    if isinstance(space, gymnasium.spaces.Discrete):
        actor = DiscreteActor(preprocess_net=bodies[0], action_shape=int(space.n), softmax_output=False)
        policy = DiscreteActorPolicy(actor=actor, action_space=space)
        critic = DiscreteCritic(preprocess_net=bodies[1])
    else:
        actor = ContinuousActorProbabilistic(preprocess_net=bodies[0], action_shape=space.shape, unbounded=True)
        policy = ProbabilisticActorPolicy(
            actor=actor, dist_fn=lambda outputs: Independent(Normal(*outputs), 1), action_space=space
        )
        critic = ContinuousCritic(preprocess_net=bodies[1])
    optim = AdamOptimizerFactory(lr=0.003)
    if schedule is not None:
        optim = optim.with_lr_scheduler_factory(schedule)
    algorithm = PPO(policy=policy, critic=critic, optim=optim, gae_lambda=0.9, gamma=0.98)
    params = {
        "training_collector": Collector(algorithm, envs, VectorReplayBuffer(buffer, NUM_ENVS)),
        "max_epochs": 1,
        "epoch_num_steps": total,
        "collection_step_num_env_steps": steps * NUM_ENVS,
        "batch_size": 32,
        "update_step_num_repetitions": 2,
        "verbose": False,
        "show_progress": False,
    }
    return algorithm, OnPolicyTrainerParams(**{**params, **changes})


def weights(algorithm):
    return {name: value.clone() for name, value in algorithm.state_dict().items() if torch.is_tensor(value)}
