"""Networks on parts and under masks: nothing of a forbidden action reaches a loss, each image has its own encoder."""

import pytest
import torch
from own_envs import Camera

from swell.config.learners import PPOSettings, PQNSettings
from swell.envs.spaces import ObservationEncoder
from swell.errors import ConfigError
from swell.learning.distributions import ActionKind
from swell.networks.actor_critics import make_actor_critic
from swell.networks.parts import FORBIDDEN, PartsEncoder
from swell.networks.q_networks import make_q_network, resolve_network

SPACE = ObservationEncoder(Camera.observation_space, "camera").space
KIND = ActionKind("categorical", (3,))


def masked_observations():
    torch.manual_seed(0)
    mask = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    return torch.cat([torch.randn(2, 4), mask], dim=1), mask.bool()


@pytest.mark.parametrize("normalize", [False, True])
def test_forbidden_actions_have_no_probability_no_gradient_and_no_entropy(normalize):
    settings = PPOSettings(normalize_observations=normalize)
    network = make_actor_critic(settings, (7,), KIND, masks=3)
    observations, mask = masked_observations()
    network.observe(observations)
    assert not normalize or network.normalizer.mean.shape == (4,)
    parameters, values = network(observations)
    distribution = KIND.distribution(parameters)
    assert torch.equal(distribution.log_probs.exp() > 0, mask)
    assert distribution.entropy()[1] == 0.0 and torch.isfinite(distribution.entropy()).all()
    (distribution.log_prob(torch.tensor([0, 1])) + distribution.entropy() + values).sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in network.parameters() if each.grad is not None)
    samples = [distribution.sample(torch.Generator().manual_seed(seed)) for seed in range(50)]
    assert set(torch.stack(samples)[:, 0].tolist()) == {0, 2} and set(torch.stack(samples)[:, 1].tolist()) == {1}


def test_forbidden_actions_are_never_the_best():
    network = make_q_network(PQNSettings(), (7,), 3, masks=3)
    observations, mask = masked_observations()
    q_values = network(observations)
    assert torch.equal(q_values > FORBIDDEN, mask)
    assert torch.equal(q_values[mask], network.network(observations[:, :4])[mask])


@pytest.mark.parametrize("network", ["auto", "minatar-cnn"])
def test_each_image_has_an_encoder_and_all_else_one(network):
    made = make_q_network(PQNSettings(network=network, hidden=(16,)), SPACE.shape, 2, SPACE.parts)
    encoder = made[0]
    assert isinstance(encoder, PartsEncoder) and encoder.features == 128 + 16
    assert made(torch.zeros(5, *SPACE.shape)).shape == (5, 2)
    assert resolve_network("auto", SPACE.shape, SPACE.parts) == "minatar-cnn"
    policy = make_actor_critic(PPOSettings(network=network), SPACE.shape, KIND, parts=SPACE.parts, masks=0)
    assert policy(torch.zeros(5, *SPACE.shape))[0].shape == (5, 3)


def test_a_part_is_seen_where_it_was_put():
    made = make_q_network(PQNSettings(hidden=(16,)), SPACE.shape, 2, SPACE.parts)
    rows = torch.randn(1, 113)
    image = made[0].images[0](rows[:, :108].unflatten(1, (6, 6, 3)))
    rest = made[0].rest(rows[:, 108:])
    assert torch.equal(made[0](rows), torch.cat([image, rest], dim=1))


def test_a_flat_network_still_takes_all_of_it_and_others_are_refused():
    assert make_q_network(PQNSettings(network="mlp"), SPACE.shape, 2, SPACE.parts)(torch.zeros(1, 113)).shape == (1, 2)
    with pytest.raises(ConfigError, match="network pqn-l is for one image, got observations of 3 parts"):
        make_q_network(PQNSettings(network="pqn-l"), SPACE.shape, 2, SPACE.parts)
    with pytest.raises(ConfigError, match="impala-cnn needs images of at least 8"):
        make_q_network(PQNSettings(network="impala-cnn"), SPACE.shape, 2, SPACE.parts)
