"""Q-networks: published parameter counts, shapes and what their norms average."""

import pytest
import torch
from torch import nn

from swell.errors import ConfigError
from swell.networks.encoders import WIDE_CONVOLUTIONS, ChannelNorm, ImageEncoder, MultiSkipEncoder, as_float
from swell.networks.heads import make_q_network, resolve_network

ATARI = (4, 84, 84)


def q_network(name, shape, num_actions, hidden=(128, 128), norm_over="channels", head="original"):
    return make_q_network(name, shape, num_actions, hidden, norm_over, head)


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
    assert parameters(q_network(name, ATARI, 18, norm_over=norm_over, head=head)) == count


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
    q_values = q_network(name, ATARI, 6, head=head)(observations)
    assert q_values.isfinite().all()
    assert q_values[0].tolist() != q_values[1].tolist()


def test_every_block_gets_the_projected_features_again():
    images = ImageEncoder((4, 36, 36), WIDE_CONVOLUTIONS, 0, "map")
    encoder = MultiSkipEncoder(images, 8, [nn.Identity() for _ in range(3)])
    observations = torch.randint(0, 256, (2, 4, 36, 36), dtype=torch.uint8)
    torch.testing.assert_close(encoder(observations), 4.0 * encoder.project(images(observations)))


def test_the_release_head_makes_q_values_that_sum_to_zero():
    observations = torch.randint(0, 256, (3, *ATARI), dtype=torch.uint8)
    q_values = q_network("pqn-l", ATARI, 6, head="release")(observations)
    torch.testing.assert_close(q_values.sum(dim=1), torch.zeros(3), atol=1e-5, rtol=0.0)


def test_bytes_become_shares_and_flags_become_ones():
    assert as_float(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]
    assert as_float(torch.tensor([False, True])).tolist() == [0.0, 1.0]


def test_the_channel_norm_averages_the_channels_of_each_pixel():
    images = torch.randn(2, 8, 3, 3)
    normed = ChannelNorm(8)(images)
    torch.testing.assert_close(normed.mean(dim=1), torch.zeros(2, 3, 3), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(normed.var(dim=1, correction=0), torch.ones(2, 3, 3), atol=1e-3, rtol=0.0)


def test_pictures_with_channels_last_are_turned_round():
    pictures = torch.randint(0, 256, (2, 96, 96, 3), dtype=torch.uint8)
    assert q_network("auto", (96, 96, 3), 5)(pictures).shape == (2, 5)


@pytest.mark.parametrize(("name", "shape"), [("pqn-l", (4,)), ("nature-cnn", (4, 10, 10)), ("minatar-cnn", (2, 2, 2))])
def test_a_network_that_does_not_fit_the_observation_is_refused_in_words(name, shape):
    with pytest.raises(ConfigError, match=f"network {name} needs pictures"):
        q_network(name, shape, 3)
