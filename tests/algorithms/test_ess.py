"""The ESS-adaptive objective: REINFORCE on its own data, smaller steps and a pull back on data of another policy."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from policy_learners import EchoEnvs, assert_repeats, gradients_of, learner_for, practise, rollout_of, weights
from scripted_envs import IdentityEnvs, ScriptedEnvs

from swell.algorithms import ess
from swell.batch.signals import effective_sample_size
from swell.learning.advantages import normalized
from swell.learning.losses import k3_penalty, value_error
from swell.types import BatchPlan

pytestmark = pytest.mark.portable

ONE_STEP = BatchPlan(20, 1, 1)


def ess_learner(envs=None, **fields):
    return learner_for(envs or ScriptedEnvs(), "ess", **fields)


def moved(learner, envs, shift=2.0):
    """A rollout of the learner as it was before its policy moved in every state, in each by another amount."""
    rollout = rollout_of(learner, envs)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        head = learner.network.policy_head
        head.weight += shift * torch.randn(head.weight.shape, generator=generator)
    return rollout


def log_ratios_of(learner, batch):
    distribution = learner.space.kind.distribution(learner.parameters(batch.states))
    return distribution.log_prob(batch.actions) - batch.behavior_log_probs


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("envs", [ScriptedEnvs, EchoEnvs])
@pytest.mark.parametrize("scope", ["batch", "minibatch"])
def test_on_its_own_data_the_first_step_is_that_of_reinforce_with_advantages(envs, scope):
    learner, twin = (ess_learner(envs(), ess_scope=scope, entropy_coefficient=0.1) for _ in range(2))
    rollout = rollout_of(learner, envs())
    taken = gradients_of(learner)
    metrics = learner.update(rollout, ONE_STEP, 0.0)
    batch = twin.peek(rollout)
    parameters, values = twin.network(batch.states)
    policy = twin.space.kind.distribution(parameters)
    reinforce = -policy.log_prob(batch.actions) * normalized(batch.advantages)
    (reinforce + 0.5 * value_error(values, batch.returns) - 0.1 * policy.entropy()).mean().backward()
    torch.testing.assert_close(taken[0], twin.optimizer.gradient)
    assert metrics["effective_sample_size"] == pytest.approx(1.0, abs=1e-9)
    assert metrics["penalty"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("penalty", ["exact", "k3"])
def test_on_stale_data_weights_are_capped_and_the_penalty_is_on(penalty):
    learner = ess_learner(staleness=1, ess_penalty=penalty, value_coefficient=0.0, advantage_norm="none")
    rollout = moved(learner, ScriptedEnvs())
    batch, kind = learner.peek(rollout), learner.space.kind
    log_ratios = log_ratios_of(learner, batch)
    trust = effective_sample_size(log_ratios)
    assert trust < 0.9
    now = kind.distribution(learner.parameters(batch.states))
    pull = now.kl(kind.distribution(batch.parameters)) if penalty == "exact" else k3_penalty(log_ratios)
    weight = log_ratios.exp().clamp(max=trust.item())
    assert weight.max().item() == pytest.approx(trust.item())
    expected = -weight * now.log_prob(batch.actions) * batch.advantages + (1.0 - trust) * pull
    indices, sample_losses, _ = learner.gradient_probe(rollout)
    torch.testing.assert_close(sample_losses(indices), expected)
    metrics = learner.update(rollout, ONE_STEP, 0.0)
    assert metrics["effective_sample_size"] == pytest.approx(trust.item())
    assert metrics["penalty"] == pytest.approx(pull.mean().item())
    assert metrics["capped_fraction"] == pytest.approx((log_ratios.exp() > trust).float().mean().item())


def test_the_two_penalties_are_different_numbers():
    penalties = []
    for penalty in ("exact", "k3"):
        learner = ess_learner(staleness=1, ess_penalty=penalty)
        penalties.append(learner.update(moved(learner, ScriptedEnvs()), ONE_STEP, 0.0)["penalty"])
    assert abs(penalties[0] - penalties[1]) > 0.05


@pytest.mark.parametrize("penalty", ["exact", "k3"])
def test_where_nothing_is_to_be_gained_the_penalty_pulls_the_policy_back(penalty):
    """All advantages are 0, so that the pull is the only force on the policy."""
    fields = {"value_coefficient": 0.0, "learning_rate": 1e-2, "ess_penalty": penalty}
    learner = ess_learner(staleness=1, **fields)
    rollout = moved(learner, ScriptedEnvs(), shift=0.3)
    kind, parameters = learner.space.kind, rollout.recorded["parameters"].flatten(0, 1)
    acted = kind.distribution(parameters)

    def distance():
        return kind.distribution(learner.parameters(rollout.states)).kl(acted).mean().item()

    before = distance()
    batch = learner.peek(rollout)
    learner.prepare = lambda _: replace(batch, advantages=torch.zeros_like(batch.advantages))
    learner.update(rollout, BatchPlan(20, 60, 1), 0.0)
    assert distance() < 0.3 * before


def pools_of(monkeypatch, **fields):
    """Every set of log-ratios that an effective sample size was taken of in the first epoch, four minibatches of 10."""
    learner, pools = ess_learner(staleness=1, **fields), []
    original = ess.effective_sample_size

    def spy(log_ratios):
        pools.append(log_ratios.clone())
        return original(log_ratios)

    rollout = moved(learner, ScriptedEnvs())
    before = log_ratios_of(learner, learner.peek(rollout))
    monkeypatch.setattr(ess, "effective_sample_size", spy)
    metrics = learner.update(rollout, BatchPlan(20, 1, 4), 0.0)
    mean = sum(original(pool).item() for pool in pools) / len(pools)
    assert metrics["effective_sample_size"] == pytest.approx(mean)
    return pools, before


@pytest.mark.usefixtures("in_float64")
def test_a_scope_of_the_batch_pools_all_transitions(monkeypatch):
    pools, before = pools_of(monkeypatch, ess_scope="batch")
    assert [len(pool) for pool in pools] == [40] * 4
    torch.testing.assert_close(pools[0], before)
    for earlier, later in pairwise(pools):
        assert (earlier != later).sum() <= 10  # the rest is as it was last seen
    # The first minibatch was seen before any step; the second and third have been seen since.
    assert 10 < ((pools[3] - before).abs() > 1e-9).sum() <= 20


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("micro_batch_size", [1024, 4])
def test_a_scope_of_the_minibatch_pools_what_is_trained_on_together(monkeypatch, micro_batch_size):
    pools, before = pools_of(monkeypatch, ess_scope="minibatch", micro_batch_size=micro_batch_size)
    assert [len(pool) for pool in pools] == [10] * 4
    assert all((before - each).abs().min() < 1e-9 for each in pools[0])


def test_reset_rows_do_not_count():
    envs = ScriptedEnvs(next_step=True)
    learner, twin = ess_learner(envs, staleness=1), ess_learner(envs, staleness=1)
    rollout = rollout_of(learner, envs)
    assert not rollout.valid.all()
    far_away = torch.tensor([1e3, -1e3])
    spoiled = replace(
        rollout,
        rewards=torch.where(rollout.valid, rollout.rewards, 1e6),
        recorded={
            **rollout.recorded,
            "parameters": torch.where(rollout.valid.unsqueeze(2), rollout.recorded["parameters"], far_away),
        },
    )
    plan = BatchPlan(20, 2, 4)
    assert learner.update(rollout, plan, 0.0) == twin.update(spoiled, plan, 0.0)
    assert torch.equal(weights(learner), weights(twin))


def ratios_reported(now, acted, actions):
    """The metrics of an update that changes nothing, of a policy that is the same in all states, on given actions."""
    learner = ess_learner(staleness=1, learning_rate=1e-12)
    rollout = rollout_of(learner, ScriptedEnvs())
    parameters = torch.tensor(acted).log().expand(20, 2, 2)
    with torch.no_grad():
        learner.network.policy_head.weight.zero_()
        learner.network.policy_head.bias.copy_(torch.tensor(now).log())
    taken = torch.tensor(actions).repeat(20 * 2 // len(actions)).view(20, 2)
    rollout = replace(rollout, actions=taken, recorded={**rollout.recorded, "parameters": parameters})
    metrics = learner.update(rollout, ONE_STEP, 0.0)
    return metrics["effective_sample_size"], metrics["ratio_mean"], metrics["ratio_deviation"]


@pytest.mark.usefixtures("in_float64")
def test_the_mean_ratio_tells_a_policy_that_stayed_from_one_whose_ratios_all_grew_alike():
    stayed = ratios_reported(now=[0.5, 0.5], acted=[0.5, 0.5], actions=[0, 1])
    grew = ratios_reported(now=[0.9, 0.1], acted=[0.5, 0.5], actions=[0])
    spread = ratios_reported(now=[0.9, 0.1], acted=[0.5, 0.5], actions=[0, 1])
    assert stayed == pytest.approx((1.0, 1.0, 0.0), abs=1e-9)
    assert grew == pytest.approx((1.0, 1.8, 0.0), abs=1e-9)
    assert spread == pytest.approx((1.0 / 1.64, 1.0, 0.8), abs=1e-9)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("target_kl", "epochs"), [(1e-6, 2), (1e3, 5), (None, 5)])
def test_a_target_kl_ends_the_update_after_the_epoch_that_went_past_it(target_kl, epochs):
    learner = ess_learner(target_kl=target_kl)
    metrics = learner.update(rollout_of(learner, ScriptedEnvs()), BatchPlan(20, 5, 1), 0.0)
    assert metrics["epochs"] == metrics["gradient_steps"] == epochs


@pytest.mark.usefixtures("in_float64")
def test_advantages_are_normalised_over_each_minibatch_if_asked(monkeypatch):
    seen, original = [], ess.ess_policy_loss

    def spy(log_probs, behavior, advantages, trust):
        seen.append(advantages.clone())
        return original(log_probs, behavior, advantages, trust)

    learner = ess_learner(advantage_norm="minibatch")
    rollout = rollout_of(learner, ScriptedEnvs())
    monkeypatch.setattr(ess, "ess_policy_loss", spy)
    learner.update(rollout, BatchPlan(20, 1, 4), 0.0)
    for advantages in seen:
        assert (advantages.mean().item(), advantages.std().item()) == pytest.approx((0.0, 1.0), abs=1e-6)


@pytest.mark.parametrize("staleness", [0, 3])
@pytest.mark.parametrize("scope", ["batch", "minibatch"])
def test_ess_learns_to_repeat_the_observation(scope, staleness):
    envs = IdentityEnvs()
    learner = ess_learner(envs, learning_rate=1e-2, ess_scope=scope, staleness=staleness)
    practise(learner, envs, BatchPlan(8, 4, 4), 20, staleness)
    assert_repeats(learner, envs)
