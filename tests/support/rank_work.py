"""What one process, or each of several that share it, does with the same rollouts; what comes out is compared.

`python rank_work.py OUT` in an environment as torchrun makes it; the first process writes OUT.
"""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

sys.path.insert(0, str(Path(__file__).parent))

from float64 import everything_in_float64
from policy_learners import read_by
from scripted_envs import ScriptedEnvs

from swell import ranks
from swell.algorithms.pqn import PQN
from swell.batch.noise_scale import GradientNoiseScale
from swell.batch.signals import BehavioralDivergence, EffectiveSampleSize, KLDivergence
from swell.collect.collector import Collector
from swell.config.run_config import RunConfig
from swell.errors import ProcessesDifferError
from swell.learning import advantages
from swell.learning.policy_batch import PolicyBatch
from swell.measurement import Measurement, Probe
from swell.networks import normalizer
from swell.runs.build import make_learner
from swell.runs.driver import require_same_weights
from swell.types import BatchPlan, Rollout

CPU = torch.device("cpu")
HORIZON, NUM_ENVS = 8, 6
OBSERVATIONS = spaces.Box(-5, 5, (5,), np.float32)
CONTINUOUS, DISCRETE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
PLAN = BatchPlan(HORIZON, epochs=2, minibatches=14)
"""Minibatches of two or three samples, of which some process often has none."""
COMMON = {
    "scaler": "fixed",
    "minibatch_rule": "count",
    "hidden": (16,),
    "activation": "tanh",
    "learning_rate": 1e-2,
    "anneal_learning_rate": False,
    "path": "autograd",
    "phase_env_steps": 2 * HORIZON * NUM_ENVS,
    "auxiliary_minibatch_size": 5,
    "auxiliary_epochs": 2,
}
NORMALISED = {"normalize_observations": True, "normalize_rewards": True}
CASES = {
    "pqn": ("pqn", DISCRETE, {}),
    "ppo": ("ppo", CONTINUOUS, {**NORMALISED, "advantage_norm": "batch"}),
    "ppo of minibatches": ("ppo", DISCRETE, {"advantage_norm": "minibatch", "target_kl": 0.02}),
    "ppo on stale data": ("ppo", DISCRETE, {"staleness": 1, "staleness_mode": "decoupled"}),
    "ppo-ewma": ("ppo-ewma", CONTINUOUS, NORMALISED),
    "ppg": ("ppg", DISCRETE, {}),
    "ppg-ewma": ("ppg-ewma", CONTINUOUS, NORMALISED),
    "ess": ("ess", CONTINUOUS, {**NORMALISED, "advantage_norm": "minibatch"}),
    "ess of minibatches": ("ess", DISCRETE, {"ess_scope": "minibatch", "staleness": 1}),
}
SIGNALS = {
    "behavioral_divergence": BehavioralDivergence,
    "kl_divergence": KLDivergence,
    "effective_sample_size": EffectiveSampleSize,
    "gradient_noise_scale": lambda: GradientNoiseScale(microbatches=6),
}
CONTROLS = {
    "local moments": ("ppo", "ppo of minibatches", "ppo-ewma", "ess"),
    "local statistics": ("ppo", "ppo-ewma", "ess"),
    "local readings": ("pqn", "ppo of minibatches"),
}


def make(algorithm, action_space, fields):
    fields = {**read_by(algorithm, **{**COMMON, **fields})}
    config = RunConfig("scripted", algorithm=algorithm, num_envs=NUM_ENVS, **fields)
    return make_learner(config, OBSERVATIONS, action_space, CPU)


def whole_rollout(learner, action_space, seed):
    """Of all envs, with ends, reset rows and, in the second rollout, envs that only have such."""
    random = torch.Generator().manual_seed(seed)
    shape = (HORIZON, NUM_ENVS)
    observations = torch.randn((HORIZON + 1, NUM_ENVS, 5), generator=random) * 2 + 1
    terminated = torch.rand(shape, generator=random) < 0.15
    truncated = (torch.rand(shape, generator=random) < 0.15) & ~terminated
    valid = torch.rand(shape, generator=random) < torch.linspace(0.9, 0.6, NUM_ENVS)
    if seed == 2:
        valid[:, NUM_ENVS - NUM_ENVS // 3 :] = False
    indices = truncated.flatten().nonzero().squeeze(1)
    continuous = isinstance(action_space, spaces.Box)
    actions = torch.randn((*shape, 2), generator=random) if continuous else torch.randint(3, shape, generator=random)
    recorded = {"values": torch.randn(shape, generator=random)}
    if not isinstance(learner, PQN):
        with torch.no_grad():
            parameters = learner.network(observations[:-1].flatten(0, 1))[0]
        noise = 0.1 * torch.randn(parameters.shape, generator=random)
        recorded["parameters"] = (parameters + noise).unflatten(0, shape)
        if continuous:
            recorded["sampled_actions"] = actions
    return Rollout(
        observations=observations,
        actions=actions,
        rewards=torch.randn(shape, generator=random),
        terminated=terminated & valid,
        truncated=truncated & valid,
        valid=valid,
        final_observations=torch.randn((len(indices), 5), generator=random)[(valid.flatten())[indices]],
        final_indices=indices[(valid.flatten())[indices]],
        recorded=recorded,
    )


def own_columns(rollout):
    """This process's part of a rollout."""
    if ranks.is_alone():
        return rollout
    count = NUM_ENVS // ranks.place().count
    first = count * ranks.place().rank
    columns = slice(first, first + count)
    times, envs = rollout.final_indices // NUM_ENVS, rollout.final_indices % NUM_ENVS
    own = (envs >= first) & (envs < first + count)
    names = ("observations", "actions", "rewards", "terminated", "truncated", "valid")
    return replace(
        rollout,
        **{name: getattr(rollout, name)[:, columns] for name in names},
        final_observations=rollout.final_observations[own],
        final_indices=(times * count + envs - first)[own],
        recorded={name: rows[:, columns] for name, rows in rollout.recorded.items()},
    )


def updates(case, path="autograd"):
    """Weights, metrics and readings after two updates."""
    algorithm, action_space, fields = CASES[case]
    learner = make(algorithm, action_space, {**fields, "path": path})
    if path == "compiled":  # in float32, where a step must not depend on the last digits of a gradient
        learner.optimizer.epsilon = 1.0
    names = ["behavioral_divergence", "gradient_noise_scale"] if algorithm == "pqn" else list(SIGNALS)
    measurements = {name: Measurement(SIGNALS[name](), probe_states=20, seed=3) for name in names}
    metrics, readings = [], []
    for seed in (1, 2):
        rollout = own_columns(whole_rollout(learner, action_space, seed))
        before = {name: measurement.observe(learner, rollout) for name, measurement in measurements.items()}
        metrics.append(learner.update(rollout, PLAN, 0.1))
        readings.append({name: measurements[name].compare(before[name], learner) for name in names})
    weights = {name: tensor.clone() for name, tensor in learner.network.state_dict().items()}
    return {"weights": weights, "metrics": metrics, "readings": readings}


def noise():
    """What each kind of learner draws for a rollout, as it acts on one path and on the other."""
    drawn = {}
    count = NUM_ENVS // ranks.place().count
    shown = torch.arange(NUM_ENVS * 5.0).view(NUM_ENVS, 5).sin()
    own = shown[count * ranks.place().rank :][:count]
    for case in ("pqn", "ppo", "ppo of minibatches"):
        learner = make(*CASES[case])
        actions = torch.stack([learner.act(own, 0.0)[0] for _ in range(3)])
        drawn[case] = ranks.side_by_side(actions)
        learner = make(*CASES[case][:2], {**CASES[case][2], "path": "compiled"})
        actor = learner.actor(3, count)
        actor.start(3)
        actions = torch.stack([torch.from_numpy(actor.act(step, own.numpy(), 0.0).copy()) for step in range(3)])
        drawn[f"{case}, compiled"] = ranks.side_by_side(actions)
    return drawn


class Columns(ScriptedEnvs):
    """This process's part of the envs."""

    def __init__(self):
        super().__init__(NUM_ENVS, next_step=True)
        count = NUM_ENVS // ranks.place().count
        self.own = slice(count * ranks.place().rank, count * (ranks.place().rank + 1))
        self.every, self.num_envs = NUM_ENVS, count

    def reset(self):
        self.num_envs = self.every
        observations = super().reset()
        self.num_envs = self.own.stop - self.own.start
        return observations[self.own]

    def step(self, actions):
        self.num_envs = self.every
        step = super().step(np.zeros(self.every))
        self.num_envs = self.own.stop - self.own.start
        return type(step)(*(None if rows is None else rows[self.own] for rows in step))


class Still:
    def act(self, observations, progress):
        return torch.zeros(observations.shape[0], dtype=torch.int64), {}


def collected():
    """The clock and the episodes of rollouts with reset rows, to the end of a run."""
    collector, noted = Collector(Columns(), 10, CPU), []
    while collector.env_steps < 145:
        collector.collect(Still(), 7, 145)
        noted.append((collector.env_steps, collector.episodes.finished, list(collector.episodes.returns)))
    return noted


@contextmanager
def made_local(what):
    """A fault: something is taken over this process alone."""

    def own_advantages(batch, rescale):
        rescaled = batch.advantages.clone()
        if len(batch.own):
            rescaled[batch.own] = rescale(batch.advantages[batch.own])
        return rescaled

    def own_minibatch(batch, minibatch, rescaled):
        rows = batch.shares.own(minibatch)
        rescaled[rows] = advantages.normalized(batch.advantages[rows]) if len(rows) else rescaled[rows]

    def own_view(probe, learner):
        if not len(probe.states):
            return learner.view(torch.zeros(1, 5), torch.zeros(1, dtype=torch.int64))
        return learner.view(probe.states, probe.actions)

    with pytest.MonkeyPatch.context() as patch:
        if what == "local moments":
            patch.setattr(PolicyBatch, "rescaled_advantages", own_advantages)
            patch.setattr(PolicyBatch, "normalize_minibatch", own_minibatch)
        elif what == "local statistics":
            patch.setattr(normalizer, "everyones", lambda value: [value])
            patch.setattr(advantages, "everyones", lambda value: [value])
        elif what == "local readings":
            patch.setattr(Probe, "view", own_view)
        yield


def differing():
    """What is said when a digit of one process's weights is another."""
    network = make(*CASES["ppo"]).network
    require_same_weights(network, 1000)
    with torch.no_grad():
        next(network.parameters()).view(-1)[0] += 1e-6 * ranks.place().rank
    try:
        require_same_weights(network, 1000)
    except ProcessesDifferError as error:
        return str(error)
    return None


def everything():
    with everything_in_float64():
        results = {"as it is": {case: updates(case) for case in CASES}}
        for what, cases in CONTROLS.items():
            with nullcontext() if ranks.is_alone() else made_local(what):
                results[what] = {case: updates(case) for case in cases}
    results["compiled"] = {case: updates(case, "compiled") for case in ("pqn", "ppo of minibatches", "ess")}
    return {**results, "noise": noise(), "collected": collected(), "differing": differing()}


def in_processes(count, *arguments, script=__file__):
    """Starts a script in so many processes that know of each other, as torchrun would."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, script, *map(str, arguments)],
            env={**os.environ, **{k: str(v) for k, v in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.join():
        found = everything()
        if ranks.is_first():
            torch.save(found, sys.argv[1])
