"""What all policy learners share: what they draw, what they record, what the envs get, what they look at."""

import pytest
import torch
from policy_learners import EchoEnvs, JointEnvs, learner_for, rollout_of
from scripted_envs import IdentityEnvs, ScriptedEnvs

from swell.algorithms.ppo import PPO
from swell.batch.rules import BatchSizes
from swell.errors import ConfigError
from swell.types import BatchPlan

pytestmark = pytest.mark.portable


def learner_on(envs, **fields):
    return learner_for(envs, **fields), torch.from_numpy(envs.reset())


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("envs", [IdentityEnvs, JointEnvs, EchoEnvs])
def test_what_is_recorded_is_the_distribution_that_acted_and_the_value(envs):
    learner, observations = learner_on(envs())
    _, recorded = learner.act(observations, 0.0)
    torch.testing.assert_close(recorded["parameters"], learner.parameters(observations))
    torch.testing.assert_close(recorded["values"], learner.values(observations))
    assert ("sampled_actions" in recorded) == (envs is EchoEnvs)
    assert not any(tensor.requires_grad for tensor in recorded.values())


def test_actions_are_drawn_with_the_probabilities_of_the_policy():
    learner, _ = learner_on(ScriptedEnvs())
    with torch.no_grad():
        learner.network.policy_head.weight.zero_()
        learner.network.policy_head.bias.copy_(torch.tensor([0.2, 0.8]).log())
    actions, _ = learner.act(torch.zeros(20_000, 3), 0.0)
    assert actions.float().mean().item() == pytest.approx(0.8, abs=0.01)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("envs", [IdentityEnvs, JointEnvs, EchoEnvs])
def test_greedy_actions_are_the_mode_and_draw_nothing(envs):
    learner, observations = learner_on(envs())
    with torch.no_grad():
        learner.network.policy_head.bias.copy_(torch.arange(learner.network.policy_head.out_features))
    before = learner.state_dict()["exploration"]
    greedy = learner.greedy_actions(observations)
    expected = {IdentityEnvs: 3, JointEnvs: [2, 1], EchoEnvs: None}[envs]
    if envs is EchoEnvs:
        assert greedy.abs().max().item() == 1.0  # the second mean is near 1, so half of them lie beyond the box
        torch.testing.assert_close(greedy, learner.parameters(observations)[:, :2].clamp(-1.0, 1.0))
    else:
        assert all(action == expected for action in greedy.tolist())
    assert torch.equal(learner.state_dict()["exploration"], before)


def test_the_state_of_the_generator_decides_what_is_drawn_next():
    learner, _ = learner_on(IdentityEnvs())
    observations = torch.zeros(100, 4)
    state = learner.state_dict()
    first, second = (learner.act(observations, 0.0)[0] for _ in range(2))
    assert not torch.equal(first, second)
    learner.load_state_dict(state)
    assert torch.equal(learner.act(observations, 0.0)[0], first)


@pytest.mark.usefixtures("in_float64")
def test_many_observations_are_looked_at_a_few_at_a_time():
    learner, _ = learner_on(IdentityEnvs(), micro_batch_size=7)
    sizes = []
    learner.network.policy_encoder.register_forward_hook(lambda _, inputs, __: sizes.append(inputs[0].shape[0]))
    observations = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    parameters = learner.parameters(observations)
    assert sizes == [7, 7, 6]
    with torch.no_grad():
        torch.testing.assert_close(parameters, learner.network.policy(observations))
        torch.testing.assert_close(learner.values(observations), learner.network.value(observations))


def test_no_observations_have_no_values():
    learner, observations = learner_on(IdentityEnvs())
    assert learner.values(observations[:0]).shape == (0,)


def test_observations_count_only_where_there_is_a_normaliser():
    envs = IdentityEnvs()
    plain, learner = (learner_for(envs, normalize_observations=normalize) for normalize in (False, True))
    batch = plain.peek(rollout_of(plain, envs, horizon=3))
    plain.observe(batch)
    assert plain.network.normalizer is None
    learner.observe(batch)
    assert learner.network.normalizer.count.item() == 48
    torch.testing.assert_close(learner.network.normalizer.mean, batch.states.double().mean(dim=0))


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("envs", [IdentityEnvs, JointEnvs, EchoEnvs])
def test_a_view_is_what_the_policy_says_and_draws_nothing(envs):
    learner, observations = learner_on(envs())
    _, recorded = learner.act(observations, 0.0)
    actions = recorded["sampled_actions"] if envs is EchoEnvs else learner.act(observations, 0.0)[0]
    before = learner.state_dict()["exploration"]
    view = learner.view(observations, actions)
    torch.testing.assert_close(view.greedy_actions, learner.greedy_actions(observations))
    torch.testing.assert_close(view.parameters, learner.parameters(observations))
    expected = view.kind.distribution(view.parameters).log_prob(actions)
    torch.testing.assert_close(view.log_probs, expected)
    assert torch.equal(learner.state_dict()["exploration"], before)


def test_a_view_outlives_an_update():
    envs = ScriptedEnvs()
    learner = learner_for(envs, learning_rate=0.1)
    rollout = rollout_of(learner, envs)
    view = learner.view(rollout.states, rollout.actions.flatten())
    parameters, log_probs = view.parameters.clone(), view.log_probs.clone()
    learner.update(rollout, BatchPlan(20, 2, 2), 0.0)
    assert torch.equal(view.parameters, parameters) and torch.equal(view.log_probs, log_probs)
    assert not torch.equal(learner.parameters(rollout.states), parameters)


def test_invariance_needs_the_batch_that_the_settings_were_tuned_at():
    envs = ScriptedEnvs()
    with pytest.raises(ConfigError, match="invariance on needs `reference`"):
        PPO(envs.observation_space, envs.action_space, invariance="on")
    learner = PPO(
        envs.observation_space,
        envs.action_space,
        invariance="on",
        learning_rate=1e-3,
        anneal_learning_rate=False,
        reference=BatchSizes(160.0, 40.0),
    )
    metrics = learner.update(rollout_of(learner, envs), BatchPlan(20, 1, 4), 0.0)
    assert metrics["learning_rate"] == pytest.approx(0.5e-3)


def test_an_option_of_another_learner_is_unknown():
    envs = ScriptedEnvs()
    with pytest.raises(ConfigError, match="unknown option proximal_decay"):
        PPO(envs.observation_space, envs.action_space, proximal_decay=0.5)
