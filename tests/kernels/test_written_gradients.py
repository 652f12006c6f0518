"""Gradients written out: the same as autograd's."""

import pytest
import torch
from torch import nn

from swell.config.learners import PolicySettings, PQNSettings
from swell.kernels.written_gradients import chain_of, policy_chain_of
from swell.learning.distributions import ActionKind
from swell.learning.optimize import flat_parameters
from swell.networks.actor_critics import ActorCritic, make_actor_critic
from swell.networks.q_networks import make_q_network

pytestmark = pytest.mark.portable

NETWORKS = [
    ("mlp", (4,), torch.float32, "channels", "relu"),
    ("mlp", (2, 3), torch.float64, "none", "tanh"),
    ("minatar-cnn", (4, 10, 10), torch.bool, "channels", "relu"),
    ("minatar-cnn", (6, 10, 10), torch.bool, "none", "relu"),
    ("nature-cnn", (4, 84, 84), torch.uint8, "channels", "relu"),
    ("nature-cnn", (4, 84, 84), torch.uint8, "map", "relu"),
    ("nature-cnn", (96, 96, 3), torch.uint8, "channels", "relu"),
]


def observations_of(shape, dtype):
    generator = torch.Generator().manual_seed(1)
    if dtype.is_floating_point:
        return torch.randn((6, *shape), dtype=dtype, generator=generator)
    return torch.randint(0, 2 if dtype == torch.bool else 256, (6, *shape), generator=generator).to(dtype)


def q_network(name, shape, norm_over, activation):
    torch.manual_seed(0)
    settings = PQNSettings(network=name, hidden=(16, 8), norm_over=norm_over, activation=activation)
    network = make_q_network(settings, shape, 3)
    for parameter in network.parameters():  # nothing at zero or one, where a wrong gradient might not show
        parameter.data += 0.05 * torch.randn_like(parameter)
    return network


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("name", "shape", "dtype", "norm_over", "activation"), NETWORKS)
def test_outputs_and_gradients_are_those_of_autograd(name, shape, dtype, norm_over, activation):
    network = q_network(name, shape, norm_over, activation)
    flat = flat_parameters(network)
    observations, slopes = observations_of(shape, dtype), torch.randn(6, 3)
    outputs = network(observations)
    outputs.backward(slopes)
    expected = flat.grad.clone()
    flat.grad.zero_()
    tape = []
    chain = chain_of(network)
    with torch.inference_mode():
        torch.testing.assert_close(chain.forward(observations, tape), outputs.detach())
        chain.backward(slopes, tape)
    assert tape == []
    torch.testing.assert_close(flat.grad, expected)


@pytest.mark.usefixtures("in_float64")
def test_gradients_add_up():
    network = q_network("minatar-cnn", (4, 10, 10), "channels", "relu")
    flat, chain = flat_parameters(network), chain_of(network)
    observations, slopes = observations_of((4, 10, 10), torch.bool), torch.randn(6, 3)

    def add(rows):
        tape = []
        chain.forward(observations[rows], tape)
        chain.backward(slopes[rows], tape)

    with torch.no_grad():
        add(slice(None))
        whole = flat.grad.clone()
        flat.grad.zero_()
        add(slice(0, 2))
        add(slice(2, None))
    torch.testing.assert_close(flat.grad, whole)


@pytest.mark.usefixtures("in_float64")
def test_the_way_back_goes_on_below_the_first_layer_where_it_is_wanted():
    linear = nn.Linear(3, 2)
    flat_parameters(linear)
    inputs, slopes, tape = torch.randn(5, 3), torch.randn(5, 2), []
    chain = chain_of(linear)
    with torch.no_grad():
        chain.forward(inputs, tape)
        torch.testing.assert_close(chain.backward(slopes, tape, wanted=True), slopes @ linear.weight)


def test_observations_stay_as_they_were():
    observations = torch.randn(6, 4)
    before = observations.clone()
    network = q_network("mlp", (4,), "none", "relu")
    flat_parameters(network)
    with torch.no_grad():
        chain_of(network).forward(observations, [])
    assert torch.equal(observations, before)


@pytest.mark.parametrize("name", ["impala-cnn", "pqn-l"])
def test_other_networks_are_left_to_autograd(name):
    network = make_q_network(PQNSettings(network=name, norm_over="map"), (4, 84, 84), 3)
    flat_parameters(network)
    assert chain_of(network) is None


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, groups=2), nn.GELU()])
def test_layers_of_another_kind_are_left_to_autograd(layer):
    flat_parameters(nn.Sequential(layer, nn.Linear(2, 2)))
    assert chain_of(layer) is None


class Doubled(nn.Sequential):
    def forward(self, inputs):
        return 2.0 * super().forward(inputs)


class DoubledLinear(nn.Linear):
    def forward(self, inputs):
        return 2.0 * super().forward(inputs)


@pytest.mark.parametrize(
    "network",
    [
        Doubled(nn.Linear(3, 2)),
        DoubledLinear(3, 2),
        nn.Linear(3, 2, bias=False),
        nn.LayerNorm(3, elementwise_affine=False),
        nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).requires_grad_(False)),
        nn.Sequential(nn.ReLU(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.ReLU(), nn.Linear(4, 2)),
    ],
    ids=["subclass", "layer subclass", "no bias", "no scale", "frozen", "observations first", "two activations"],
)
def test_what_only_looks_plain_is_left_to_autograd(network):
    """A subclass has its own forward, and an activation works in place: not on observations, nor on what is kept."""
    flat_parameters(nn.Sequential(network, nn.Linear(2, 2)))
    assert chain_of(network) is None


class OwnActorCritic(ActorCritic):
    def forward(self, observations):
        parameters, values = super().forward(observations)
        return parameters, 2.0 * values


def test_an_actor_critic_of_ones_own_is_left_to_autograd():
    torch.manual_seed(0)
    network = make_actor_critic(PolicySettings(), (3,), ActionKind("gaussian", (2,)))
    flat_parameters(network)
    assert policy_chain_of(network) is not None
    network.log_std.requires_grad_(False)
    assert policy_chain_of(network) is None
    network.log_std.requires_grad_(True)
    network.__class__ = OwnActorCritic
    assert policy_chain_of(network) is None
