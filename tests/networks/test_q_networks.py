"""Q-networks: published parameter counts, shapes and what their norms average."""

import pytest
import torch
from tolerances import rounding_of
from torch import nn

from swell.config.learners import PQNSettings
from swell.errors import ConfigError
from swell.networks.encoders import WIDE_CONVOLUTIONS, ImageEncoder, MultiSkipEncoder, as_float
from swell.networks.q_networks import make_q_network, resolve_network

pytestmark = pytest.mark.portable

ATARI = (4, 84, 84)


def q_network(name, shape, num_actions, **fields):
    return make_q_network(PQNSettings(network=name, **fields), shape, num_actions)


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("name", "norm_over", "head", "count"),
    [
        ("nature-cnn", "channels", "original", 1_694_706),
        ("nature-cnn", "map", "original", 1_736_626),
        ("pqn-l", "map", "original", 6_502_226),
        ("pqn-xl", "map", "original", 9_139_026),
        ("pqn-l", "map", "release", 6_238_582),
        ("pqn-xl", "map", "release", 8_875_382),
    ],
)
def test_atari_networks_have_the_published_number_of_parameters(name, norm_over, head, count):
    assert parameters(q_network(name, ATARI, 18, norm_over=norm_over, multi_skip_head=head)) == count


@pytest.mark.parametrize(
    ("shape", "dtype", "name"),
    [((4,), torch.float32, "mlp"), ((4, 10, 10), torch.bool, "minatar-cnn"), (ATARI, torch.uint8, "nature-cnn")],
)
def test_auto_fits_the_network_to_the_observation(shape, dtype, name):
    assert resolve_network("auto", shape) == name
    assert q_network("auto", shape, 3)(torch.ones((5, *shape), dtype=dtype)).shape == (5, 3)


@pytest.mark.parametrize("name", ["nature-cnn", "pqn-l"])
@pytest.mark.parametrize("head", ["original", "release"])
def test_the_first_predictions_are_finite_and_tell_observations_apart(name, head):
    torch.manual_seed(0)
    observations = torch.randint(0, 256, (3, *ATARI), dtype=torch.uint8)
    q_values = q_network(name, ATARI, 6, multi_skip_head=head)(observations)
    assert q_values.isfinite().all()
    assert q_values[0].tolist() != q_values[1].tolist()


@pytest.mark.usefixtures("in_float64")
def test_every_block_gets_the_projected_features_again():
    images = ImageEncoder((4, 36, 36), WIDE_CONVOLUTIONS, 0, "map")
    encoder = MultiSkipEncoder(images, 8, [nn.Identity() for _ in range(3)])
    observations = torch.randint(0, 256, (2, 4, 36, 36), dtype=torch.uint8)
    torch.testing.assert_close(encoder(observations), 4.0 * encoder.project(images(observations)))


@pytest.mark.usefixtures("in_float64")
def test_the_release_head_makes_q_values_that_sum_to_zero():
    observations = torch.randint(0, 256, (3, *ATARI), dtype=torch.uint8)
    q_values = q_network("pqn-l", ATARI, 6, multi_skip_head="release")(observations)
    torch.testing.assert_close(q_values.sum(dim=1), torch.zeros(3))


def test_bytes_become_shares_and_flags_become_ones():
    assert as_float(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]
    assert as_float(torch.tensor([False, True])).tolist() == [0.0, 1.0]


def test_pictures_with_channels_last_are_turned_round():
    pictures = torch.randint(0, 256, (2, 96, 96, 3), dtype=torch.uint8)
    assert q_network("auto", (96, 96, 3), 5)(pictures).shape == (2, 5)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("pqn-l", (4,)), ("nature-cnn", (4, 10, 10)), ("minatar-cnn", (2, 2, 2)), ("impala-cnn", (4, 7, 9))],
)
def test_a_network_that_does_not_fit_the_observation_is_refused_in_words(name, shape):
    with pytest.raises(ConfigError, match=f"network {name} needs images"):
        q_network(name, shape, 3)


def test_checkpoints_of_pqn_networks_still_fit():
    dense = [f"0.dense.{layer}.{kind}" for layer in (0, 1) for kind in ("weight", "bias")]
    head = ["1.weight", "1.bias"]
    convolution = ["0.convolutions.0.weight", "0.convolutions.0.bias"]
    norm = ["0.convolutions.1.norm.weight", "0.convolutions.1.norm.bias"]
    assert list(q_network("minatar-cnn", (4, 10, 10), 3).state_dict()) == [*convolution, *norm, *dense, *head]
    blocks = [f"0.blocks.{block}.{layer}.{kind}" for block in (0, 1) for layer in (0, 1) for kind in ("weight", "bias")]
    assert list(q_network("mlp", (4,), 3).state_dict()) == [*blocks, *head]
    turned = list(q_network("nature-cnn", (96, 96, 3), 3).state_dict())
    assert (turned[0], turned[-1]) == ("1.0.convolutions.0.weight", "1.1.bias")


@pytest.mark.parametrize(
    ("name", "shape", "norm_over", "head", "total", "absolute_total"),
    [
        ("mlp", (4,), "channels", "original", 29.595355768222362, 237.73565109533956),
        ("mlp", (4,), "map", "original", 42.847435570904054, 189.9165333911078),
        ("minatar-cnn", (4, 10, 10), "channels", "original", 144.44213606447644, 4923.488447503193),
        ("minatar-cnn", (4, 10, 10), "map", "original", 1164.1889573127094, 5924.1099052200425),
        ("nature-cnn", (4, 84, 84), "channels", "original", 605.2518078883922, 37054.131299729765),
        ("nature-cnn", (96, 96, 3), "channels", "original", 655.2064789643752, 41583.148843363786),
        ("pqn-l", (4, 84, 84), "map", "original", 48269.00061964305, 248684.8470741135),
        ("pqn-l", (4, 84, 84), "map", "release", 47795.48320272656, 235161.17107566138),
    ],
)
def test_a_seed_gives_the_weights_it_gave_in_the_first_release(name, shape, norm_over, head, total, absolute_total):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        network = q_network(name, shape, 3, hidden=(32, 16), norm_over=norm_over, multi_skip_head=head)
        weights = network.state_dict().values()
    # Not bitwise: the last digits of normal draws and of QR decompositions, which make orthogonal weights, are the
    # processor's. They take a few dozen operations for each weight.
    digits = rounding_of(absolute_total, roundings=32)
    assert sum(weight.double().sum().item() for weight in weights) == pytest.approx(total, abs=digits)
    assert sum(weight.double().abs().sum().item() for weight in weights) == pytest.approx(absolute_total, abs=digits)


def test_a_q_network_can_do_without_norms_and_with_tanh():
    network = q_network("mlp", (4,), 3, hidden=(8, 8), norm_over="none", activation="tanh")
    kinds = [type(part) for part in network.modules() if not list(part.children())]
    assert kinds == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]


@pytest.mark.parametrize(("name", "shape"), [("minatar-cnn", (4, 10, 10)), ("nature-cnn", (4, 84, 84))])
def test_a_cnn_without_norms_has_no_layer_norm(name, shape):
    network = q_network(name, shape, 3, norm_over="none")
    assert not [part for part in network.modules() if isinstance(part, nn.LayerNorm)]
    assert network(torch.ones(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("shape", [(3, 64, 64), (64, 64, 3), (4, 84, 84), (4, 10, 10)])
def test_an_impala_q_network_fits_every_picture(shape):
    assert q_network("impala-cnn", shape, 6)(torch.zeros((2, *shape), dtype=torch.uint8)).shape == (2, 6)


@pytest.mark.usefixtures("in_float64")
def test_an_impala_q_network_keeps_the_initialisation_of_its_encoder():
    encoder, head = q_network("impala-cnn", (3, 64, 64), 6)
    torch.testing.assert_close(encoder.dense.weight.detach().norm(dim=1), torch.full((256,), 1.4))
    torch.testing.assert_close(head.weight.detach().norm(dim=1), torch.full((6,), 0.1))
