"""Acting: what is drawn, what is recorded, what the envs get."""

import pytest
import torch
from policy_learners import EchoEnvs, JointEnvs, learner_for
from scripted_envs import IdentityEnvs, ScriptedEnvs

from swell.learning.actor import ActionSpace
from swell.learning.distributions import ActionKind

pytestmark = pytest.mark.portable


def test_continuous_actions_meet_their_box_in_bounds_and_shape():
    low, high = torch.tensor([-1.0, 0.0, 2.0, -9.0]), torch.tensor([1.0, 0.5, 3.0, 9.0])
    space = ActionSpace(ActionKind("gaussian", (4,)), (2, 2), low, high)
    actions = torch.tensor([[-5.0, 0.25, 9.0, 4.0], [0.5, -1.0, 0.0, -99.0]])
    assert space.for_env(actions).tolist() == [[[-1.0, 0.25], [3.0, 4.0]], [[0.5, 0.0], [2.0, -9.0]]]


def test_discrete_actions_reach_the_env_as_they_are():
    actions = torch.tensor([[2, 0], [1, 1]])
    assert ActionSpace(ActionKind("multi-categorical", (3, 2))).for_env(actions) is actions


def actor_on(envs, **fields):
    actor = learner_for(envs, **fields).actor
    return actor, torch.from_numpy(envs.reset())


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("envs", [IdentityEnvs, JointEnvs, EchoEnvs])
def test_what_is_recorded_is_the_distribution_that_acted_and_the_value(envs):
    actor, observations = actor_on(envs())
    _, recorded = actor.act(observations)
    torch.testing.assert_close(recorded["parameters"], actor.parameters(observations))
    torch.testing.assert_close(recorded["values"], actor.values(observations))
    assert ("sampled_actions" in recorded) == (envs is EchoEnvs)
    assert not any(tensor.requires_grad for tensor in recorded.values())


def test_actions_are_drawn_with_the_probabilities_of_the_policy():
    actor, _ = actor_on(ScriptedEnvs())
    with torch.no_grad():
        actor.network.policy_head.weight.zero_()
        actor.network.policy_head.bias.copy_(torch.tensor([0.2, 0.8]).log())
    actions, _ = actor.act(torch.zeros(20_000, 3))
    assert actions.float().mean().item() == pytest.approx(0.8, abs=0.01)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("envs", [IdentityEnvs, JointEnvs, EchoEnvs])
def test_greedy_actions_are_the_mode_and_draw_nothing(envs):
    actor, observations = actor_on(envs())
    with torch.no_grad():
        actor.network.policy_head.bias.copy_(torch.arange(actor.network.policy_head.out_features))
    before = actor.generator_state()
    greedy = actor.greedy_actions(observations)
    expected = {IdentityEnvs: 3, JointEnvs: [2, 1], EchoEnvs: None}[envs]
    if envs is EchoEnvs:
        assert greedy.abs().max().item() == 1.0  # the second mean is near 1, so half of them lie beyond the box
        torch.testing.assert_close(greedy, actor.parameters(observations)[:, :2].clamp(-1.0, 1.0))
    else:
        assert all(action == expected for action in greedy.tolist())
    assert torch.equal(actor.generator_state(), before)


def test_the_state_of_the_generator_decides_what_is_drawn_next():
    actor, _ = actor_on(IdentityEnvs())
    observations = torch.zeros(100, 4)
    state = actor.generator_state()
    first, second = (actor.act(observations)[0] for _ in range(2))
    assert not torch.equal(first, second)
    actor.set_generator_state(state)
    assert torch.equal(actor.act(observations)[0], first)


@pytest.mark.usefixtures("in_float64")
def test_many_observations_are_looked_at_a_few_at_a_time():
    actor, _ = actor_on(IdentityEnvs(), micro_batch_size=7)
    sizes = []
    actor.network.policy_encoder.register_forward_hook(lambda _, inputs, __: sizes.append(inputs[0].shape[0]))
    observations = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    parameters = actor.parameters(observations)
    assert sizes == [7, 7, 6]
    with torch.no_grad():
        torch.testing.assert_close(parameters, actor.network.policy(observations))
        torch.testing.assert_close(actor.values(observations), actor.network.value(observations))


def test_no_observations_have_no_values():
    actor, observations = actor_on(IdentityEnvs())
    assert actor.values(observations[:0]).shape == (0,)


def test_observations_count_only_where_there_is_a_normaliser():
    plain, observations = actor_on(IdentityEnvs())
    plain.observe(observations, torch.arange(len(observations)))
    actor, _ = actor_on(IdentityEnvs(), normalize_observations=True)
    actor.observe(observations, torch.arange(len(observations)))
    assert actor.network.normalizer.count.item() == 16
    torch.testing.assert_close(actor.network.normalizer.mean, observations.double().mean(dim=0))
