"""PPO: its ratios, advantages, clips and stops, what it sends to envs, and that it learns."""

import numpy as np
import pytest
import torch
from policy_learners import (
    CPU,
    FOREVER,
    EchoEnvs,
    JointEnvs,
    around_steps,
    assert_repeats,
    gradients_of,
    learner_for,
    practise,
    rollout_of,
    weights,
)
from scripted_envs import IdentityEnvs, ScriptedEnvs

from swell.algorithms import ppo
from swell.collect.collector import Collector
from swell.learning.losses import clipped_value_error, value_error
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

ONE_STEP = BatchPlan(20, 1, 1)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("envs", [ScriptedEnvs, JointEnvs, EchoEnvs])
def test_the_first_ratio_is_one_on_fresh_data(envs):
    learner = learner_for(envs(), advantage_norm="none")
    rollout = rollout_of(learner, envs())
    advantages = learner.peek(rollout).advantages
    metrics = learner.update(rollout, ONE_STEP, 0.0)
    assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-12)
    assert metrics["clip_fraction"] == 0.0
    assert metrics["policy_loss"] == pytest.approx(-advantages.mean().item())
    moved = learner.update(rollout, ONE_STEP, 0.0)  # the same data again, which is no longer this policy's
    assert moved["approx_kl"] > 1e-6


def test_reset_rows_do_not_change_the_update():
    envs = ScriptedEnvs(next_step=True)
    learner, twin = learner_for(envs), learner_for(envs)
    rollout = rollout_of(learner, envs)
    assert not rollout.valid.all()
    kept, plan = rollout.valid, BatchPlan(20, 2, 4)
    # The value of a reset row is that of the last observation before it, wanted after a time limit and only there.
    after_limit = torch.cat([torch.zeros(1, 2, dtype=torch.bool), rollout.truncated[:-1]])
    recorded = {
        "parameters": torch.where(kept.unsqueeze(2), rollout.recorded["parameters"], 1e3),
        "values": torch.where(kept | after_limit, rollout.recorded["values"], 1e6),
    }
    rewards, actions = torch.where(kept, rollout.rewards, 1e6), torch.where(kept, rollout.actions, 1)
    spoiled = type(rollout)(**{**vars(rollout), "rewards": rewards, "actions": actions, "recorded": recorded})
    assert learner.update(rollout, plan, 0.0) == twin.update(spoiled, plan, 0.0)
    assert torch.equal(weights(learner), weights(twin))


def advantages_trained_on(monkeypatch, norm, micro_batch_size):
    """What the loss got in an epoch of four minibatches, as (advantages of each minibatch, unscaled advantages)."""
    envs, seen = ScriptedEnvs(num_envs=4), []
    learner = learner_for(envs, advantage_norm=norm, micro_batch_size=micro_batch_size)
    original = ppo.clipped_surrogate

    def spy(log_probs, behavior, advantages, clip_range):
        seen.append(advantages.clone())
        return original(log_probs, behavior, advantages, clip_range)

    monkeypatch.setattr(ppo, "clipped_surrogate", spy)
    rollout = rollout_of(learner, envs)
    plain = learner.peek(rollout).advantages
    learner.update(rollout, BatchPlan(20, 1, 4), 0.0)
    return list(torch.cat(seen).split(20)), plain


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("micro_batch_size", [1024, 5])
def test_advantages_are_normalised_over_each_minibatch(monkeypatch, micro_batch_size):
    minibatches, _ = advantages_trained_on(monkeypatch, "minibatch", micro_batch_size)
    for advantages in minibatches:
        assert advantages.mean().item() == pytest.approx(0.0, abs=1e-9)
        assert advantages.std().item() == pytest.approx(1.0)


@pytest.mark.usefixtures("in_float64")
def test_advantages_are_normalised_over_the_batch(monkeypatch):
    minibatches, _ = advantages_trained_on(monkeypatch, "batch", 1024)
    whole = torch.cat(minibatches)
    assert whole.mean().item() == pytest.approx(0.0, abs=1e-9) and whole.std().item() == pytest.approx(1.0)
    assert all(abs(advantages.mean().item()) > 1e-3 for advantages in minibatches)


@pytest.mark.usefixtures("in_float64")
def test_advantages_may_stay_as_they_are(monkeypatch):
    minibatches, plain = advantages_trained_on(monkeypatch, "none", 1024)
    torch.testing.assert_close(torch.cat(minibatches).sort().values, plain.sort().values)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("target_kl", "epochs"), [(1e-6, 2), (1e3, 5), (None, 5)])
def test_a_target_kl_ends_the_update_after_the_epoch_that_went_past_it(target_kl, epochs):
    """One minibatch an epoch: the first sees the policy that acted, the second one that has moved."""
    envs = ScriptedEnvs()
    learner = learner_for(envs, target_kl=target_kl)
    metrics = learner.update(rollout_of(learner, envs), BatchPlan(20, 5, 1), 0.0)
    assert metrics["epochs"] == metrics["gradient_steps"] == epochs


def test_a_target_kl_does_not_cut_an_epoch_short():
    envs = ScriptedEnvs()
    learner = learner_for(envs, target_kl=1e-9)
    metrics = learner.update(rollout_of(learner, envs), BatchPlan(20, 5, 4), 0.0)
    assert (metrics["epochs"], metrics["gradient_steps"]) == (1, 4)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("clip_range", [None, 0.1])
def test_values_are_clipped_around_those_that_acted_if_there_is_a_range(clip_range):
    envs = ScriptedEnvs()
    learner = learner_for(envs, value_clip_range=clip_range, value_coefficient=0.5)
    rollout = rollout_of(learner, envs)
    batch = learner.peek(rollout)
    indices, sample_losses, _ = learner.gradient_probe(rollout)
    before = sample_losses(indices)
    with torch.no_grad():
        learner.network.value_head.bias += 1.0
    new_values = batch.values + 1.0
    expected = value_error(new_values, batch.returns)
    if clip_range is not None:
        expected = clipped_value_error(new_values, batch.values, batch.returns, clip_range)
    gained = 0.5 * (expected - value_error(batch.values, batch.returns))
    torch.testing.assert_close(sample_losses(indices) - before, gained)


def test_the_entropy_bonus_makes_the_policy_more_random():
    envs = ScriptedEnvs()
    entropies = {}
    for coefficient in (0.0, 10.0):
        learner = learner_for(envs, entropy_coefficient=coefficient, learning_rate=1e-2)
        with torch.no_grad():
            learner.network.policy_head.bias[0] = 2.0
        rollout = rollout_of(learner, envs)
        learner.update(rollout, BatchPlan(20, 15, 1), 0.0)
        parameters = learner.parameters(rollout.states)
        entropies[coefficient] = learner.space.kind.distribution(parameters).entropy().mean().item()
    assert entropies[10.0] > entropies[0.0] + 0.05


def test_ppo_learns_to_repeat_the_observation():
    envs = IdentityEnvs()
    learner = learner_for(envs, learning_rate=1e-2)
    practise(learner, envs, BatchPlan(8, 4, 4), 20)
    assert_repeats(learner, envs)


def test_ppo_learns_joint_choices():
    envs = JointEnvs()
    learner = learner_for(envs, learning_rate=1e-2)
    practise(learner, envs, BatchPlan(8, 4, 4), 20)
    shown = torch.tensor([[i, j] for i in range(3) for j in range(2)])
    states = torch.cat([torch.eye(3)[shown[:, 0]], torch.eye(2)[shown[:, 1]]], dim=1)
    assert learner.greedy_actions(states).tolist() == shown.tolist()


def test_ppo_learns_continuous_actions():
    """To repeat what is shown; always acting 0 would be 0.25 away on average."""
    envs = EchoEnvs()
    learner = learner_for(envs, initial_log_std=-1.0)
    practise(learner, envs, BatchPlan(16, 4, 4), 15)
    states = torch.from_numpy(envs.reset())
    assert (learner.greedy_actions(states) - states).abs().mean().item() < 0.05


@pytest.mark.usefixtures("in_float64")
def test_envs_get_clipped_actions_and_the_policy_learns_from_what_it_drew():
    envs = EchoEnvs(bound=0.1)
    learner = learner_for(envs)
    rollout = rollout_of(learner, envs)
    sampled = rollout.recorded["sampled_actions"]
    assert (sampled.abs() > 0.1).float().mean() > 0.5
    torch.testing.assert_close(rollout.actions, sampled.clamp(-0.1, 0.1))
    assert np.array_equal(np.stack(envs.actions_seen), rollout.actions.numpy())
    batch = learner.peek(rollout)
    assert torch.equal(batch.actions, sampled.flatten(0, 1))
    drawn = learner.space.kind.distribution(learner.parameters(rollout.states)).log_prob(batch.actions)
    torch.testing.assert_close(batch.behavior_log_probs, drawn)


def test_the_statistics_of_observations_move_only_at_the_end_of_an_update():
    envs = ScriptedEnvs(next_step=True)
    learner = learner_for(envs, normalize_observations=True, path="autograd")
    normalizer, counts = learner.network.normalizer, []
    rollout = rollout_of(learner, envs)
    learner.greedy_actions(rollout.states)
    learner.gradient_probe(rollout)
    around_steps(learner.optimizer, after=lambda: counts.append(normalizer.count.item()))
    learner.update(rollout, BatchPlan(20, 2, 4), 0.0)
    assert counts == [0.0] * 8
    assert normalizer.count.item() == rollout.valid.sum().item() < rollout.valid.numel()
    torch.testing.assert_close(normalizer.mean, rollout.states[rollout.valid_indices].double().mean(dim=0))


def test_a_restored_learner_sees_observations_as_the_original():
    envs = ScriptedEnvs()
    learner, restored, fresh = (learner_for(envs, normalize_observations=True, seed=seed) for seed in (1, 2, 3))
    practise(learner, envs, BatchPlan(20, 2, 4), 3)
    restored.load_state_dict(learner.state_dict())
    states = rollout_of(learner, ScriptedEnvs()).states
    actions = learner.greedy_actions(states)
    assert torch.equal(restored.greedy_actions(states), actions)
    restored.network.normalizer.load_state_dict(fresh.network.normalizer.state_dict())
    assert not torch.equal(restored.greedy_actions(states), actions)


def test_the_scale_of_rewards_is_saved():
    envs = ScriptedEnvs()
    learner, restored, forgetful = (learner_for(envs, normalize_rewards=True) for _ in range(3))
    plan, collector = BatchPlan(20, 1, 2), Collector(envs, 20, CPU)
    learner.update(collector.collect(learner, 20, FOREVER), plan, 0.0)
    state = learner.state_dict()
    restored.load_state_dict(state)
    forgetful.load_state_dict({**state, "reward_normalizer": forgetful.state_dict()["reward_normalizer"]})
    rollout = collector.collect(learner, 20, FOREVER)
    returns = [each.prepare(rollout).returns for each in (learner, restored, forgetful)]
    assert torch.equal(returns[0], returns[1])
    assert not torch.equal(returns[0], returns[2])


def test_the_learning_rate_falls_with_progress_where_it_is_annealed():
    envs = ScriptedEnvs()
    rollout = rollout_of(learner_for(envs), envs)
    rates = [
        learner_for(envs, anneal_learning_rate=anneal).update(rollout, ONE_STEP, 0.25)["learning_rate"]
        for anneal in (False, True)
    ]
    assert rates == pytest.approx([3e-3, 0.75 * 3e-3])


@pytest.mark.usefixtures("in_float64")
def test_gradients_are_cut_to_their_norm():
    envs = ScriptedEnvs()
    learner = learner_for(envs, max_gradient_norm=0.5)
    taken = gradients_of(learner)
    metrics = learner.update(rollout_of(learner, envs), BatchPlan(20, 1, 1), 0.0)
    assert metrics["gradient_norm"] > 1.0
    assert taken[0].norm().item() == pytest.approx(0.5)
