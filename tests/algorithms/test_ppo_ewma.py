"""PPO-EWMA: the average it stays near, its moments of advantages, and what the batch size does to its numbers."""

from copy import deepcopy

import pytest
import torch
from policy_learners import CPU, FOREVER, around_steps, assert_repeats, learner_for, practise, rollout_of, weights
from scripted_envs import IdentityEnvs, ScriptedEnvs

from swell.collect.collector import Collector
from swell.learning.advantages import normalized
from swell.learning.losses import decoupled_clip, squared_log_ratio, value_error
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

DECAY = 0.75


def ewma(envs=None, **fields):
    return learner_for(envs or ScriptedEnvs(), "ppo-ewma", **{"proximal_decay": DECAY, **fields})


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("micro_batch_size", [1024, 3])
def test_the_average_takes_one_step_for_each_gradient_step(micro_batch_size):
    learner = ewma(micro_batch_size=micro_batch_size)
    seen = [weights(learner)]
    around_steps(learner.optimizer, after=lambda: seen.append(weights(learner)))
    learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 2, 4), 0.0)
    assert len(seen) == 1 + 8
    shares = torch.tensor([DECAY**age for age in range(8, -1, -1)])
    average = torch.cat([parameter.flatten() for parameter in learner.average.network.parameters()])
    expected = (shares.unsqueeze(1) * torch.stack(seen)).sum(dim=0) / shares.sum()
    torch.testing.assert_close(average, expected)
    assert learner.average.weight == pytest.approx(shares.sum().item())


@pytest.mark.usefixtures("in_float64")
def test_without_decay_the_proximal_policy_is_the_current_one_at_every_step():
    distances = {}
    for decay in (0.0, DECAY):
        learner = ewma(proximal_decay=decay, learning_rate=3e-2)
        metrics = learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 4, 4), 0.0)
        distances[decay] = metrics["approx_kl"], metrics["clip_fraction"]
    assert distances[0.0] == pytest.approx((0.0, 0.0), abs=1e-12)
    assert distances[DECAY][0] > 1e-3


@pytest.mark.usefixtures("in_float64")
def test_the_loss_weighs_clips_and_penalises_by_the_average():
    learner = ewma(clip_range=0.1, kl_penalty=0.7, value_coefficient=0.3, entropy_coefficient=0.2, learning_rate=3e-2)
    collector = Collector(ScriptedEnvs(), 20, CPU)
    learner.update(collector.collect(learner, 20, FOREVER), BatchPlan(20, 2, 4), 0.0)
    rollout = collector.collect(learner, 20, FOREVER)
    with torch.no_grad():
        learner.network.policy_head.bias[0] += 0.5  # further from its average than the clip range
    indices, sample_losses, _ = learner.gradient_probe(rollout)
    batch, kind = learner.peek(rollout), learner.space.kind
    with torch.no_grad():
        now, average = (
            kind.distribution(network.policy(batch.states)) for network in (learner.network, learner.average.network)
        )
        log_probs, proximal = now.log_prob(batch.actions), average.log_prob(batch.actions)
        assert (log_probs - proximal).abs().max() > 0.1
        expected = (
            decoupled_clip(log_probs, proximal, batch.behavior_log_probs, normalized(batch.advantages), 0.1)
            + 0.7 * squared_log_ratio(log_probs, proximal)
            + 0.3 * value_error(learner.network.value(batch.states), batch.returns)
            - 0.2 * now.entropy()
        )
    torch.testing.assert_close(sample_losses(indices), expected)


def test_a_penalty_keeps_the_policy_nearer():
    """Without a clip range: what holds the policy back is the penalty alone."""
    distances = []
    for penalty in (0.0, 10.0):
        learner = ewma(clip_range=0.0, kl_penalty=penalty, proximal_decay=0.99, learning_rate=1e-2)
        rollout = rollout_of(learner, ScriptedEnvs())
        before = learner.parameters(rollout.states)
        learner.update(rollout, BatchPlan(20, 20, 1), 0.0)
        kind = learner.space.kind
        after = kind.distribution(learner.parameters(rollout.states))
        distances.append(kind.distribution(before).kl(after).mean().item())
    assert distances[1] < 0.5 * distances[0]


def test_nothing_is_said_to_be_clipped_where_nothing_clips():
    learner = ewma(clip_range=0.0, learning_rate=3e-2)
    assert "clip_fraction" not in learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 4, 4), 0.0)


def test_advantages_are_normalised_by_this_and_the_batches_before():
    learner = ewma(advantage_decay=0.5)
    collector = Collector(ScriptedEnvs(), 20, CPU)
    for count in (40, 0.5 * 40 + 40, 0.25 * 40 + 0.5 * 40 + 40):
        learner.update(collector.collect(learner, 20, FOREVER), BatchPlan(20, 1, 1), 0.0)
        assert learner.moments.state_dict()["count"] == count


def test_advantages_may_stay_as_they_are():
    learner = ewma(advantage_norm="none")
    learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 1, 1), 0.0)
    assert learner.moments.state_dict()["count"] == 0


def test_the_average_sees_observations_as_the_policy_does():
    learner = ewma(normalize_observations=True)
    learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 1, 4), 0.0)
    assert learner.average.network.normalizer.count.item() == 40
    assert torch.equal(learner.average.network.normalizer.mean, learner.network.normalizer.mean)


@pytest.mark.parametrize("dropped", [None, "average", "moments", "optimizer"])
def test_a_restored_learner_goes_on_exactly_and_needs_each_piece(dropped):
    fields = {"advantage_decay": 0.9, "kl_penalty": 1.0}  # with a penalty the average has a say in every step
    learner, restored = ewma(**fields), ewma(**fields, seed=7)
    collector, plan = Collector(ScriptedEnvs(), 20, CPU), BatchPlan(20, 2, 4)
    for _ in range(2):
        learner.update(collector.collect(learner, 20, FOREVER), plan, 0.0)
    state = deepcopy(learner.state_dict())
    if dropped:
        state[dropped] = restored.state_dict()[dropped]
    restored.load_state_dict(state)
    rollout = collector.collect(learner, 20, FOREVER)
    same = restored.update(rollout, plan, 0.1) == learner.update(rollout, plan, 0.1)
    assert same == torch.equal(weights(learner), weights(restored)) == (dropped is None)


def numbers_at(**fields):
    """What an update of 40 transitions in 4 minibatches says of its numbers."""
    learner = ewma(advantage_decay=0.5, learning_rate=1e-3, **fields)
    metrics = learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 1, 4), 0.0)
    betas = learner.optimizer.betas
    return metrics["learning_rate"], metrics["proximal_decay"], metrics["advantage_decay"], betas


def test_without_invariance_the_numbers_are_as_tuned():
    assert numbers_at(reference_batch=160) == (1e-3, DECAY, 0.5, (0.9, 0.999))


def test_a_batch_four_times_smaller_than_the_reference_gets_adjusted_numbers():
    """Rate by a half; centre of mass 3 to 12 steps; span of 3 rollouts to 12; Adam's betas only if asked."""
    rate, proximal, advantage, betas = numbers_at(invariance="on", reference_batch=160)
    assert rate == pytest.approx(0.5e-3)
    assert 1 / (1 - proximal) - 1 == pytest.approx(12.0)
    assert 2 / (1 - advantage) - 1 == pytest.approx(12.0)
    assert betas == (0.9, 0.999)
    *others, betas = numbers_at(invariance="on", reference_batch=160, invariance_rules=("betas",))
    assert others == [1e-3, DECAY, 0.5]
    assert betas == pytest.approx((0.9**0.25, 0.999**0.25))


def test_minibatches_of_one_size_leave_what_counts_gradient_steps_alone():
    """The reference batch of 160 has 16 minibatches of 10, the update has 4 of them: only its rollout is smaller."""
    rate, proximal, advantage, _ = numbers_at(
        invariance="on", reference_batch=160, minibatch_rule="size", minibatch_size=10
    )
    assert (rate, proximal) == pytest.approx((1e-3, DECAY))
    assert 2 / (1 - advantage) - 1 == pytest.approx(12.0)


@pytest.mark.parametrize("staleness", [0, 3])
def test_ppo_ewma_learns_to_repeat_the_observation(staleness):
    envs = IdentityEnvs()
    learner = learner_for(envs, "ppo-ewma", learning_rate=1e-2, staleness=staleness)
    practise(learner, envs, BatchPlan(8, 4, 4), 20, staleness)
    assert_repeats(learner, envs)
