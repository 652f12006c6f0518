"""Policy learners on envs whose every step is known, and such envs for joint and for continuous actions."""

import numpy as np
import torch
from gymnasium import spaces
from scripted_envs import IdentityEnvs, ScriptedEnvs

from swell.collect.collector import Collector
from swell.config.run_config import RunConfig
from swell.envs import EnvStep
from swell.runs.build import make_learner

CPU = torch.device("cpu")
FOREVER = 10**9
POLICY_ALGORITHMS = ["ppo", "ppo-ewma", "ppg", "ppg-ewma", "ess"]
SMALL = {
    "scaler": "fixed",
    "horizon": 16,
    "minibatch_rule": "count",
    "minibatches": 4,
    "reward_scale": 1.0,
    "discount": 0.9,
    "trace_decay": 0.5,
    "learning_rate": 3e-3,
    "anneal_learning_rate": False,
    "max_gradient_norm": None,
    "entropy_coefficient": 0.0,
    "advantage_norm": "batch",
    "hidden": (16,),
    "activation": "tanh",
    "norm_over": "none",
}


def config_for(envs, algorithm="ppo", **fields):
    return RunConfig(**{"env": "scripted", "algorithm": algorithm, "num_envs": envs.num_envs, **SMALL, **fields})


def learner_for(envs, algorithm="ppo", **fields):
    """A small learner for these envs; equal arguments make equal learners."""
    config = config_for(envs, algorithm, **fields)
    return make_learner(config, envs.observation_space, envs.action_space, CPU)


def rollout_of(learner, envs, horizon=20):
    return Collector(envs, horizon, CPU).collect(learner, horizon, FOREVER)


def practise(learner, envs, plan, iterations, staleness=0):
    """Collects and updates so many times; returns the metrics of each update."""
    collector = Collector(envs, plan.horizon, CPU, staleness)
    return [
        learner.update(collector.collect(learner, plan.horizon, FOREVER), plan, iteration / iterations)
        for iteration in range(iterations)
    ]


def weights(learner):
    return torch.cat([parameter.detach().flatten() for parameter in learner.network.parameters()])


def gradients_of(learner, optimizer=None):
    """A list that grows by the gradient of each step that the optimizer takes from now on, after clipping."""
    taken, optimizer = [], optimizer or learner.optimizer
    around_steps(optimizer, before=lambda: taken.append(optimizer.gradient.clone()))
    return taken


def around_steps(optimizer, before=lambda: None, after=lambda: None):
    """Calls these before and after each step that the optimizer takes from now on."""
    original = optimizer.step

    def step():
        before()
        original()
        after()

    optimizer.step = step


class OneStepEnvs(ScriptedEnvs):
    """Every episode is one step long. A subclass says what is shown and how an action is rewarded."""

    def __init__(self, num_envs=16, seed=0):
        super().__init__(num_envs)
        self.random = np.random.default_rng(seed)

    def step(self, actions):
        self.actions_seen.append(np.array(actions))
        rewards = self.rewarded(actions).astype(np.float32)
        everywhere, nowhere = np.ones(self.num_envs, dtype=bool), np.zeros(self.num_envs, dtype=bool)
        observations = self.reset()
        return EnvStep(
            observations, rewards, everywhere, nowhere, everywhere, rewards.astype(np.float64), everywhere, observations
        )


class JointEnvs(OneStepEnvs):
    """Two choices, one of three and one of two: each is rewarded if it is the one that is shown, one-hot."""

    def __init__(self, num_envs=16, seed=0):
        super().__init__(num_envs, seed)
        self.observation_space = spaces.Box(0, 1, (5,), np.float32)
        self.action_space = spaces.MultiDiscrete([3, 2])

    def reset(self):
        self.shown = self.random.integers([3, 2], size=(self.num_envs, 2))
        return np.concatenate([np.eye(3)[self.shown[:, 0]], np.eye(2)[self.shown[:, 1]]], axis=1).astype(np.float32)

    def rewarded(self, actions):
        return (actions == self.shown).mean(axis=1)


class EchoEnvs(OneStepEnvs):
    """Numbers in [−½, ½] are shown, and each action is to repeat them: its reward is −Σ(a − s)²."""

    def __init__(self, num_envs=16, seed=0, shape=(2,), bound=1.0):
        super().__init__(num_envs, seed)
        self.observation_space = spaces.Box(-0.5, 0.5, (int(np.prod(shape)),), np.float32)
        self.action_space = spaces.Box(-bound, bound, shape, np.float32)

    def reset(self):
        self.shown = self.random.uniform(-0.5, 0.5, (self.num_envs, *self.action_space.shape)).astype(np.float32)
        return self.shown.reshape(self.num_envs, -1)

    def rewarded(self, actions):
        return -np.square(actions - self.shown).reshape(self.num_envs, -1).sum(axis=1)


def assert_repeats(learner, envs):
    """The greedy action is the one that is shown, in every state of an IdentityEnvs."""
    assert isinstance(envs, IdentityEnvs)
    count = int(envs.action_space.n)
    assert learner.greedy_actions(torch.eye(count)).tolist() == list(range(count))
