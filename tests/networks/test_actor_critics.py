"""Actor-critics: shapes, what each loss trains in each architecture, and how they begin."""

import math

import pytest
import torch
from torch import nn

from swell.config.learners import PolicySettings
from swell.errors import ConfigError
from swell.learning.distributions import ActionKind
from swell.networks.actor_critics import make_actor_critic
from swell.networks.encoders import ImpalaEncoder

pytestmark = pytest.mark.portable

ARCHITECTURES = ["dual", "shared", "detached"]
CATEGORICAL = ActionKind("categorical", (5,))
PROCGEN = ActionKind("categorical", (15,))
KINDS = [(CATEGORICAL, 5), (ActionKind("multi-categorical", (3, 4)), 7), (ActionKind("gaussian", (3,)), 6)]


def actor_critic(
    name="mlp", shape=(4,), kind=CATEGORICAL, architecture="dual", norm_over="none", normalize=False, **heads
):
    settings = PolicySettings(
        network=name,
        architecture=architecture,
        hidden=(16, 16),
        norm_over=norm_over,
        activation="tanh",
        initial_log_std=-0.5,
        normalize_observations=normalize,
    )
    return make_actor_critic(settings, shape, kind, **heads)


def trained_by(network, loss):
    """The top-level parts of the network that the loss has a gradient for."""
    network.zero_grad()
    loss.backward()
    return {
        name.split(".")[0]
        for name, parameter in network.named_parameters()
        if parameter.grad is not None and parameter.grad.any()
    }


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("kind", "num_parameters"), KINDS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_gives_parameters_and_values_of_each_state(architecture, kind, num_parameters, normalize):
    network = actor_critic(kind=kind, architecture=architecture, normalize=normalize, auxiliary_head=True)
    observations = torch.randn(3, 4)
    parameters, values = network(observations)
    assert (parameters.shape, values.shape) == ((3, num_parameters), (3,))
    assert network.policy(observations).equal(parameters)
    assert network.value(observations).equal(values)
    again, values_again, auxiliary_values = network.auxiliary(observations)
    assert again.equal(parameters) and values_again.equal(values)
    assert auxiliary_values.shape == (3,) and not auxiliary_values.equal(values)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((4,), torch.float64),
        ((4,), torch.bool),
        ((4, 10, 10), torch.bool),
        ((4, 84, 84), torch.uint8),
        ((64, 64, 3), torch.uint8),
    ],
)
@pytest.mark.parametrize("normalize", [False, True])
def test_observations_of_any_shape_and_dtype_are_encoded(architecture, shape, dtype, normalize):
    network = actor_critic("auto", shape, architecture=architecture, normalize=normalize)
    parameters, values = network(torch.ones((2, *shape), dtype=dtype))
    assert (parameters.shape, values.shape) == ((2, 5), (2,))
    assert parameters.dtype == values.dtype == torch.float32


@pytest.mark.parametrize(
    ("architecture", "parts"),
    [
        ("dual", {"value_encoder", "value_head"}),
        ("shared", {"policy_encoder", "value_head"}),
        ("detached", {"value_head"}),
    ],
)
def test_the_value_loss_trains(architecture, parts):
    network = actor_critic(architecture=architecture, auxiliary_head=True)
    observations = torch.randn(8, 4)
    assert trained_by(network, network(observations)[1].square().sum()) == parts
    assert trained_by(network, network.value(observations).square().sum()) == parts
    assert trained_by(network, network.auxiliary(observations)[1].square().sum()) == parts


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_policy_loss_trains_the_policy_alone(architecture):
    network = actor_critic(kind=ActionKind("gaussian", (2,)), architecture=architecture, auxiliary_head=True)
    parts = {"policy_encoder", "policy_head", "log_std"}
    observations = torch.randn(8, 4)
    assert trained_by(network, network(observations)[0].square().sum()) == parts
    assert trained_by(network, network.policy(observations).square().sum()) == parts


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_auxiliary_loss_trains_the_policy_encoder(architecture):
    network = actor_critic(architecture=architecture, auxiliary_head=True)
    loss = network.auxiliary(torch.randn(8, 4))[2].square().sum()
    assert trained_by(network, loss) == {"policy_encoder", "auxiliary_head"}


@pytest.mark.parametrize(("architecture", "passes"), [("dual", 2), ("shared", 1), ("detached", 1)])
def test_observations_are_encoded_once_by_each_encoder(architecture, passes):
    network = actor_critic(architecture=architecture)
    calls = []
    for encoder in (network.policy_encoder, network.value_encoder):
        if encoder is not None:
            encoder.register_forward_hook(lambda *_: calls.append(1))
    network(torch.randn(3, 4))
    assert len(calls) == passes


def test_an_auxiliary_head_is_there_only_when_asked_for():
    with pytest.raises(RuntimeError, match="auxiliary_head=True"):
        actor_critic().auxiliary(torch.randn(1, 4))
    network = actor_critic()
    parameters, values = network(torch.randn(8, 4))
    (parameters.square().sum() + values.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_the_two_encoders_of_a_dual_network_begin_different():
    network = actor_critic()
    pairs = zip(network.policy_encoder.parameters(), network.value_encoder.parameters(), strict=True)
    assert any(not first.equal(second) for first, second in pairs)


def test_log_std_is_one_learned_vector_for_all_states():
    network = actor_critic(kind=ActionKind("gaussian", (3,)))
    parameters = network.policy(torch.randn(8, 4))
    assert parameters[:, 3:].equal(torch.full((8, 3), -0.5))
    assert len(parameters[:, :3].unique(dim=0)) == 8
    parameters[:, 3:].sum().backward()
    assert network.log_std.grad.tolist() == [8.0, 8.0, 8.0]
    assert "log_std" in dict(network.named_parameters())


def assert_orthogonal(layer, gain):
    """Rows or columns, whichever are fewer, are orthogonal and as long as the gain."""
    weight = layer.weight.detach().flatten(1)
    gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    torch.testing.assert_close(gram, gain**2 * torch.eye(len(gram)))
    assert not layer.bias.any()


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("name", "shape"), [("mlp", (4,)), ("minatar-cnn", (4, 10, 10)), ("nature-cnn", (4, 40, 40))])
@pytest.mark.parametrize("norm_over", ["none", "channels"])
def test_weights_begin_orthogonal_with_the_gain_of_their_place(name, shape, norm_over):
    network = actor_critic(name, shape, norm_over=norm_over, auxiliary_head=True)
    for encoder in (network.policy_encoder, network.value_encoder):
        layers = [layer for layer in encoder.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
        assert len(layers) >= 2
        for layer in layers:
            assert_orthogonal(layer, math.sqrt(2.0))
    assert_orthogonal(network.policy_head, 0.01)
    assert_orthogonal(network.value_head, 1.0)
    assert_orthogonal(network.auxiliary_head, 1.0)


@pytest.mark.usefixtures("in_float64")
def test_the_impala_network_keeps_its_own_initialisation_and_has_heads_of_length_a_tenth():
    network = actor_critic("impala-cnn", (64, 64, 3), PROCGEN, auxiliary_head=True)
    assert isinstance(network.policy_encoder[1], ImpalaEncoder)
    dense = network.policy_encoder[1].dense
    torch.testing.assert_close(dense.weight.detach().norm(dim=1), torch.full((256,), 1.4))
    for head in (network.policy_head, network.value_head, network.auxiliary_head):
        torch.testing.assert_close(head.weight.detach().norm(dim=1), torch.full((head.out_features,), 0.1))
        assert not head.bias.any()


def test_a_dual_impala_network_has_two_encoders_of_the_published_size():
    network = actor_critic("impala-cnn", (64, 64, 3), PROCGEN)
    heads = 15 * 257 + 257
    assert sum(parameter.numel() for parameter in network.parameters()) == 2 * 622_144 + heads


@pytest.mark.usefixtures("in_float64")
def test_the_policy_sees_observations_through_the_normaliser():
    network = actor_critic(normalize=True)
    observations = 50.0 + 3.0 * torch.randn(64, 4)
    network.normalizer.observe(observations)
    plain = actor_critic()
    plain.load_state_dict({k: v for k, v in network.state_dict().items() if not k.startswith("normalizer.")})
    normalized = (observations - observations.mean(dim=0)) / observations.std(dim=0, correction=0)
    for seen, expected in zip(network(observations), plain(normalized), strict=True):
        torch.testing.assert_close(seen, expected)


def test_a_saved_model_brings_its_normaliser_along():
    network, other = actor_critic(normalize=True), actor_critic(normalize=True)
    network.normalizer.observe(50.0 + torch.randn(64, 4))
    other.load_state_dict(network.state_dict())
    observations = 50.0 + torch.randn(3, 4)
    assert other.policy(observations).equal(network.policy(observations))


def test_statistics_are_not_trained():
    network = actor_critic(normalize=True)
    assert not [name for name, _ in network.named_parameters() if "normalizer" in name]


@pytest.mark.parametrize("name", ["pqn-l", "pqn-xl"])
def test_a_q_network_is_refused_in_one_line(name):
    message = f"network {name} is a Q-network; for ppo choose mlp, minatar-cnn, nature-cnn or impala-cnn"
    with pytest.raises(ConfigError) as error:
        actor_critic(name, (4, 84, 84))
    assert str(error.value) == message


@pytest.mark.parametrize(("name", "shape"), [("impala-cnn", (4,)), ("nature-cnn", (3, 20, 20))])
def test_a_network_that_does_not_fit_the_observation_is_refused_in_words(name, shape):
    with pytest.raises(ConfigError, match=f"network {name} needs images"):
        actor_critic(name, shape)
