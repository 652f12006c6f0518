"""Rollouts that wait: how old they are when they are trained on, who acted, and what of them is saved."""

from copy import deepcopy
from itertools import islice

import pytest
import torch
from policy_learners import CPU, FOREVER, learner_for, read_by, rollout_of, weights
from scripted_envs import ScriptedEnvs

from swell.collect.collector import Collector
from swell.loop import train
from swell.presets import make_config
from swell.runs.build import build
from swell.runs.state_tree import decode_tree, encode_tree
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

MODES = ["behavior", "recent", "decoupled"]


class Counter:
    """A learner that notes, beside each action, how many updates it has had."""

    def __init__(self):
        self.updates = 0

    def act(self, observations, progress):
        count = observations.shape[0]
        return torch.zeros(count, dtype=torch.long), {"updates": torch.full((count,), self.updates)}


def collected(staleness, calls, horizon=5, next_step=False):
    learner, collector = Counter(), Collector(ScriptedEnvs(next_step=next_step), horizon, CPU, staleness)
    for _ in range(calls):
        yield collector, collector.collect(learner, horizon, FOREVER)
        learner.updates += 1


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_what_is_trained_on_was_collected_so_many_iterations_before(staleness):
    for iteration, (_, rollout) in enumerate(collected(staleness, 8)):
        assert rollout.recorded["updates"].unique().tolist() == [max(0, iteration - staleness)]


@pytest.mark.parametrize("staleness", [1, 3])
def test_the_first_call_fills_the_queue_and_the_clock_counts_it(staleness):
    clock = [(collector.env_steps, collector.num_rollouts) for collector, _ in collected(staleness, 3)]
    assert clock == [(10 * (staleness + extra), staleness + extra) for extra in (1, 2, 3)]


@pytest.mark.parametrize("next_step", [False, True])
def test_waiting_loses_nothing_and_changes_nothing(next_step):
    """Every rollout comes out whole and in order, though the buffer it was collected in has been overwritten."""
    fresh = [deepcopy(rollout) for _, rollout in collected(0, 6, next_step=next_step)]
    waited = [rollout for _, rollout in collected(2, 6, next_step=next_step)]
    for one, other in zip(fresh, waited, strict=True):
        for name in ("observations", "actions", "rewards", "terminated", "truncated", "valid"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
        assert torch.equal(one.final_observations, other.final_observations)
        assert torch.equal(one.final_indices, other.final_indices)
    assert any(len(rollout.final_indices) for rollout in waited) != next_step


def pendulum(**fields):
    """A run on an env whose episodes are long, so that every step of every env counts."""
    small = {"algorithm": "ppo", "num_envs": 4, "horizon": 8, "minibatches": 2, "epochs": 1, "measure_every": 10**6}
    config = make_config("Pendulum-v1", **{**small, **fields})
    parts = build(config)
    return parts, train(parts.collector, parts.learner, parts.measurement, parts.scaler, config.total_env_steps)


def test_a_total_reached_while_the_queue_fills_ends_the_run_with_one_update():
    parts, iterations = pendulum(staleness=5, total_env_steps=100)
    (only,) = iterations
    assert parts.collector.env_steps == only.env_steps == 100
    assert parts.learner.gradient_steps == 2


def test_a_queue_that_was_not_full_is_filled_when_the_run_goes_on():
    parts, iterations = pendulum(staleness=5, total_env_steps=100)
    list(iterations)  # three whole rollouts of 32 env steps and one of 4, of which one was trained on
    rollout = parts.collector.collect(parts.learner, 8, 1000)
    assert parts.collector.num_rollouts == 4 + 3
    assert rollout.horizon == 8 and parts.collector.env_steps == 100 + 3 * 32


def test_every_stale_run_trains_on_all_but_the_last_rollouts():
    parts, iterations = pendulum(staleness=2, total_env_steps=320)
    assert len(list(iterations)) == 10 - 2
    assert parts.collector.env_steps == 320


def test_a_restored_queue_goes_on_exactly():
    learner, collector = Counter(), Collector(ScriptedEnvs(), 5, CPU, 2)
    collector.collect(learner, 5, FOREVER)
    learner.updates += 1
    restored = Collector(ScriptedEnvs(), 5, CPU, 2)
    restored.load_state_dict(decode_tree(*encode_tree(collector.state_dict())))
    for horizon in (5, 3, 4, 5):
        one, other = (each.collect(learner, horizon, FOREVER) for each in (collector, restored))
        assert torch.equal(one.observations, other.observations)
        assert torch.equal(one.recorded["updates"], other.recorded["updates"])
    assert restored.env_steps == collector.env_steps


@torch.no_grad()
def log_probs_of(network, learner, batch):
    return learner.space.kind.distribution(network.policy(batch.states)).log_prob(batch.actions)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("staleness", [1, 2])
def test_behaviour_log_probs_are_those_of_the_policy_that_acted(staleness):
    envs = ScriptedEnvs()
    learner = learner_for(envs, staleness=staleness, learning_rate=3e-2)
    collector, policies, plan = Collector(envs, 5, CPU, staleness), [], BatchPlan(5, 1, 1)
    for iteration in range(5):
        policies.append(deepcopy(learner.network))
        rollout = collector.collect(learner, 5, FOREVER)
        batch = learner.peek(rollout)
        acted, now = policies[max(0, iteration - staleness)], policies[-1]
        torch.testing.assert_close(batch.behavior_log_probs, log_probs_of(acted, learner, batch))
        torch.testing.assert_close(batch.recent_log_probs, log_probs_of(now, learner, batch))
        if iteration:
            assert (batch.recent_log_probs - batch.behavior_log_probs).abs().max() > 1e-3
        learner.update(rollout, plan, 0.0)


def updated(algorithm, rollout, staleness, mode):
    fields = read_by(algorithm, staleness=staleness, staleness_mode=mode, auxiliary_epochs=0)
    learner = learner_for(ScriptedEnvs(), algorithm, **fields)
    learner.update(rollout, BatchPlan(20, 3, 2), 0.0)
    return weights(learner)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("algorithm", ["ppo", "ppg"])
def test_all_modes_agree_on_fresh_data_and_differ_on_stale_data(algorithm):
    envs = ScriptedEnvs()
    learner = learner_for(envs, algorithm)
    fresh = rollout_of(learner, envs)
    expected = updated(algorithm, fresh, 0, "behavior")
    for mode in MODES:
        assert torch.equal(updated(algorithm, fresh, 0, mode), expected)
        torch.testing.assert_close(updated(algorithm, fresh, 1, mode), expected)
    other = learner_for(envs, algorithm, seed=5)
    with torch.no_grad():
        other.network.policy_head.weight *= 100.0
    stale = rollout_of(other, ScriptedEnvs())
    behavior, recent, decoupled = (updated(algorithm, stale, 1, mode) for mode in MODES)
    assert all((one - two).abs().max() > 1e-3 for one, two in [(behavior, recent), (recent, decoupled)])
    assert (behavior - decoupled).abs().max() > 1e-3


@pytest.mark.parametrize(("mode", "ratio"), [("behavior", "behavior"), ("recent", "recent"), ("decoupled", "recent")])
def test_a_mode_measures_the_distance_from_the_policy_to_stay_near(mode, ratio):
    """Before any step the policy is the recent one: it has gone nowhere from there, and far from the one that acted."""
    learner = learner_for(ScriptedEnvs(), staleness=1, staleness_mode=mode)
    rollout = rollout_of(learner, ScriptedEnvs())
    with torch.no_grad():
        learner.network.policy_head.bias[0] += 2.0
    metrics = learner.update(rollout, BatchPlan(20, 1, 1), 0.0)
    assert (metrics["approx_kl"] > 0.1) == (ratio == "behavior")
    assert (metrics["clip_fraction"] > 0.5) == (ratio == "behavior")


def test_a_run_without_staleness_saves_no_queue():
    assert Collector(ScriptedEnvs(), 5, CPU).state_dict()["delay"] is None
    waiting = next(islice(collected(2, 1), 1))[0].state_dict()["delay"]["waiting"]
    assert len(waiting) == 2
