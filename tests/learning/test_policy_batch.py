"""From rollouts to advantages, by the words of the definitions, and what a stale rollout is judged by."""

from dataclasses import replace

import pytest
import torch
from policy_learners import learner_for, rollout_of
from scripted_envs import ScriptedEnvs

from swell.learning.losses import clipped_value_error
from swell.learning.policy_batch import PolicyBatch

pytestmark = pytest.mark.portable

DISCOUNT, TRACE_DECAY = 0.9, 0.5


def slow_advantages(learner, rollout, truncation_is_termination, rewards):
    """A_t = Σ_k (γλ)^k δ_{t+k} to the end of the episode, one env and one step at a time."""
    value = learner.network.value
    finals = dict(zip(rollout.final_indices.tolist(), rollout.final_observations, strict=True))
    horizon, num_envs = rollout.rewards.shape
    errors = torch.zeros(horizon, num_envs)
    for step in range(horizon):
        for env in range(num_envs):
            successor = finals.get(step * num_envs + env, rollout.observations[step + 1, env])
            ends = rollout.terminated[step, env] or (rollout.truncated[step, env] and truncation_is_termination)
            following = 0.0 if ends else DISCOUNT * value(successor.unsqueeze(0)).item()
            errors[step, env] = rewards[step, env] + following - value(rollout.observations[step, env].unsqueeze(0))
    advantages = torch.zeros(horizon, num_envs)
    for start in range(horizon):
        for env in range(num_envs):
            factor = 1.0
            for step in range(start, horizon):
                advantages[start, env] += factor * errors[step, env]
                factor *= DISCOUNT * TRACE_DECAY
                if rollout.terminated[step, env] or rollout.truncated[step, env]:
                    break
    return advantages


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("truncation_is_termination", [False, True])
@torch.no_grad()
def test_advantages_are_the_discounted_sum_of_errors(next_step, staleness, truncation_is_termination):
    envs = ScriptedEnvs(next_step=next_step)
    fields = {"staleness": staleness, "truncation_is_termination": truncation_is_termination}
    learner = learner_for(envs, discount=DISCOUNT, trace_decay=TRACE_DECAY, **fields)
    rollout = rollout_of(learner, envs, 30)
    assert rollout.truncated.any() and rollout.terminated.any() and rollout.valid.all() != next_step
    batch = learner.peek(rollout)
    expected = slow_advantages(learner, rollout, truncation_is_termination, rollout.rewards).flatten()
    torch.testing.assert_close(batch.advantages[batch.indices], expected[batch.indices])
    assert batch.indices.tolist() == rollout.valid.flatten().nonzero().squeeze(1).tolist()


@pytest.mark.usefixtures("in_float64")
def test_advantages_and_values_make_the_returns():
    envs = ScriptedEnvs()
    learner = learner_for(envs, trace_decay=1.0)
    rollout = rollout_of(learner, envs, 3)  # one whole episode of env 0, whose rewards are 1, 2, 3
    batch = learner.peek(rollout)
    torch.testing.assert_close(batch.advantages + batch.values, batch.returns)
    observed = [1 + DISCOUNT * (2 + DISCOUNT * 3), 2 + DISCOUNT * 3, 3]
    assert batch.returns.view(3, 2)[:, 0].tolist() == pytest.approx(observed)


@pytest.mark.usefixtures("in_float64")
@torch.no_grad()
def test_rewards_are_scaled_before_they_are_summed():
    envs = ScriptedEnvs()
    learner = learner_for(envs, normalize_rewards=True, reward_scale=0.5)
    rollout = rollout_of(learner, envs)
    batch = learner.prepare(rollout)
    running, returns = [0.0, 0.0], []
    for step in range(20):
        for env in range(2):
            running[env] = rollout.rewards[step, env].item() + DISCOUNT * running[env]
            returns.append(running[env])
            if rollout.terminated[step, env] or rollout.truncated[step, env]:
                running[env] = 0.0
    scaled = 0.5 * rollout.rewards / torch.tensor(returns).std(correction=0)
    expected = slow_advantages(learner, rollout, False, scaled).flatten()
    torch.testing.assert_close(batch.advantages, expected)


def test_a_peek_at_a_batch_remembers_nothing():
    envs = ScriptedEnvs()
    learner = learner_for(envs, normalize_rewards=True)
    rollout = rollout_of(learner, envs)
    before = learner.state_dict()["reward_normalizer"]
    first = learner.peek(rollout)
    assert learner.state_dict()["reward_normalizer"]["count"] == before["count"] == 0
    learner.prepare(rollout)
    assert learner.state_dict()["reward_normalizer"]["count"] == 40
    assert not torch.equal(learner.peek(rollout).returns, first.returns)


def test_fresh_rollouts_are_not_judged_twice():
    envs = ScriptedEnvs()
    learner = learner_for(envs)
    rollout = rollout_of(learner, envs)
    batch = learner.peek(rollout)
    assert batch.recent_log_probs is batch.behavior_log_probs
    assert torch.equal(batch.values, rollout.recorded["values"].flatten())


@pytest.mark.usefixtures("in_float64")
def test_stale_rollouts_are_judged_by_the_present_network():
    envs = ScriptedEnvs()
    learner = learner_for(envs, staleness=1)
    rollout = rollout_of(learner, envs)
    with torch.no_grad():
        learner.network.policy_head.bias[0] += 1.0
        learner.network.value_head.bias += 1.0
    batch = learner.peek(rollout)
    kind, actions = learner.space.kind, rollout.actions.flatten()
    acted = kind.distribution(rollout.recorded["parameters"].flatten(0, 1)).log_prob(actions)
    torch.testing.assert_close(batch.behavior_log_probs, acted)
    now = kind.distribution(learner.parameters(rollout.states)).log_prob(actions)
    torch.testing.assert_close(batch.recent_log_probs, now)
    assert (now - acted).abs().min() > 0.1
    torch.testing.assert_close(batch.values, rollout.recorded["values"].flatten() + 1.0)


def small_batch(**tensors):
    nothing = torch.zeros(3)
    names = ("states", "actions", "parameters", "recent_log_probs", "values", "advantages", "returns")
    fields = dict.fromkeys(names, nothing) | {"behavior_log_probs": torch.ones(3)} | tensors
    return PolicyBatch(indices=torch.arange(3), **fields)


def test_values_are_reported_over_real_transitions_by_the_share_of_the_returns_that_they_explain():
    values, returns = torch.tensor([1.0, 2.0, 3.0, 50.0]), torch.tensor([2.0, 2.0, 5.0, -9.0])
    report = small_batch(values=values, returns=returns).report()
    assert report == {"value_mean": pytest.approx(2.0), "explained_variance": pytest.approx(1.0 - (2 / 3) / 2.0)}


def test_values_of_returns_that_all_agree_explain_nothing():
    assert small_batch(values=torch.arange(3.0), returns=torch.ones(3)).report()["explained_variance"] == 0.0


@pytest.mark.parametrize(
    ("mode", "corrects_for", "stays_near"),
    [
        ("behavior", "behavior_log_probs", "behavior_log_probs"),
        ("recent", "recent_log_probs", "recent_log_probs"),
        ("decoupled", "behavior_log_probs", "recent_log_probs"),
    ],
)
def test_each_mode_has_its_anchors(mode, corrects_for, stays_near):
    batch = small_batch()
    behavior, proximal = batch.anchors(mode)
    assert behavior is getattr(batch, corrects_for) and proximal is getattr(batch, stays_near)
    fresh = replace(batch, recent_log_probs=batch.behavior_log_probs)
    assert all(anchor is batch.behavior_log_probs for anchor in fresh.anchors(mode))


def test_value_losses_are_of_the_chosen_rows():
    batch = small_batch(values=torch.tensor([0.0, 10.0, 20.0]), returns=torch.tensor([1.0, 12.0, 23.0]))
    values, chosen = torch.tensor([21.0, 1.0]), torch.tensor([2, 0])
    assert batch.value_losses(values, chosen, None).tolist() == [4.0, 0.0]
    clipped = clipped_value_error(values, torch.tensor([20.0, 0.0]), torch.tensor([23.0, 1.0]), 0.5)
    assert batch.value_losses(values, chosen, 0.5).tolist() == clipped.tolist() == [6.25, 0.25]
