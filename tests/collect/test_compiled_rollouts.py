"""Rollouts in one call: what they are is what the same envs and the same actor give step by step."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from swell.algorithms.ppo import PPO
from swell.algorithms.pqn import PQN
from swell.collect.collector import Collector
from swell.envs import make_envs
from swell.envs.compiled_envs import CompiledEnvs
from swell.runs.state_tree import encode_tree
from swell.types import BatchPlan

CASES = {
    "choices": (PPO, "CartPole-v1", {}),
    "points": (PPO, "Pendulum-v1", {"normalize_observations": True}),
    "three choices": (PPO, "Acrobot-v1", {}),
    "greedy": (PQN, "MountainCar-v0", {"epsilon_fraction": 1.0}),
}
TOTAL = 400


def parts_of(case, **options):
    kind, env, fields = CASES[case]
    envs = make_envs(env, num_envs=3, seed=5, backend="compiled", **{"max_episode_steps": 17, **options})
    learner = kind(envs.observation_space, envs.action_space, path="compiled", hidden=(8,), seed=2, **fields)
    return Collector(envs, 30), learner


def played(case, monkeypatch, in_one_call, **options):
    """Three rollouts with an update between them, and what the collector remembers; the last is cut to the total."""
    monkeypatch.setattr(CompiledEnvs, "is_compiled", in_one_call)
    collector, learner = parts_of(case, **options)
    found = []
    for horizon in (30, 11, 30, 30, 30, 30):
        rollout = collector.collect(learner, horizon, TOTAL)
        found.append({name: value.clone() for name, value in vars(rollout).items() if isinstance(value, torch.Tensor)})
        found[-1] |= {name: value.clone() for name, value in rollout.recorded.items()}
        learner.update(rollout, BatchPlan(horizon, 1, 2), collector.env_steps / TOTAL)
    assert (collector._compiled is not None) == in_one_call
    return found, collector


@pytest.mark.parametrize("clip_rewards", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_rollout_in_one_call_is_the_one_step_by_step(case, clip_rewards, monkeypatch):
    (one, first), (other, second) = (
        played(case, monkeypatch, kind, clip_rewards=clip_rewards) for kind in (True, False)
    )
    for rollout, expected in zip(one, other, strict=True):
        assert rollout.keys() == expected.keys()
        for name in expected:
            assert torch.equal(rollout[name], expected[name]), name
    assert sum(len(rollout["final_indices"]) for rollout in one) > 0
    assert first.env_steps == second.env_steps == 402  # whole steps of three envs, the last of which reaches 400
    assert first.episodes.finished > 0 and first.episodes.summary() == second.episodes.summary()
    (tree, tensors), (expected_tree, expected_tensors) = (
        encode_tree({**collector.state_dict(), "seconds": {}}) for collector in (first, second)
    )
    assert tree == expected_tree and tensors.keys() == expected_tensors.keys()
    for name in tensors:
        assert torch.equal(torch.as_tensor(tensors[name]), torch.as_tensor(expected_tensors[name])), name


def test_a_force_that_is_not_finite_is_told(monkeypatch):
    from swell.errors import EnvironmentFailedError

    collector, learner = parts_of("points")
    with torch.no_grad():
        learner.network.policy_head.bias.fill_(float("nan"))
    with pytest.raises(EnvironmentFailedError, match="expected finite actions"):
        collector.collect(learner, 5, TOTAL)


def test_rewards_are_those_of_the_envs_own_scale(monkeypatch):
    """Statistics keep the true score where the learner sees signs."""
    found, collector = played("points", monkeypatch, True, clip_rewards=True)
    assert set(np.unique(found[0]["rewards"].numpy())) <= {-1.0, 0.0, 1.0}
    assert min(collector.episodes.returns) < -17.0
