"""Encoders: which norms and activations they have, and how the IMPALA CNN begins."""

import math

import pytest
import torch
from torch import nn

from swell.networks.encoders import (
    MINATAR_CONVOLUTIONS,
    NATURE_CONVOLUTIONS,
    ImageEncoder,
    ImpalaEncoder,
    NormedMap,
    ResidualConvolutions,
    VectorEncoder,
    dense_block,
    rescale_units,
)

pytestmark = pytest.mark.portable

PROCGEN = (3, 64, 64)


def kinds(module):
    return [type(part) for part in module.modules() if not list(part.children())]


def unit_norms(layer):
    return layer.weight.detach().flatten(1).norm(dim=1)


def assert_norms(layer, norm):
    torch.testing.assert_close(unit_norms(layer), torch.full((layer.weight.shape[0],), norm))
    assert not layer.bias.any()


@pytest.mark.parametrize("norm_over", ["channels", "map"])
def test_a_vector_is_normalised_whatever_a_picture_would_be_averaged_over(norm_over):
    assert kinds(VectorEncoder(4, (8,), norm_over)) == [nn.Linear, nn.LayerNorm, nn.ReLU]


def test_without_norms_an_mlp_is_linear_layers_and_activations():
    assert kinds(VectorEncoder(4, (8, 8), "none", "tanh")) == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh]
    assert kinds(dense_block(4, 8, "none")) == [nn.Linear, nn.ReLU]


@pytest.mark.usefixtures("in_float64")
def test_an_mlp_computes_its_layers_one_after_the_other():
    encoder = VectorEncoder(4, (8, 3), "none", "tanh")
    first, _, second, _ = (part for part in encoder.modules() if not list(part.children()))
    observations = torch.randn(5, 4)
    expected = torch.tanh(second(torch.tanh(first(observations))))
    torch.testing.assert_close(encoder(observations), expected)


def test_without_norms_a_cnn_has_none_in_its_dense_block_either():
    encoder = ImageEncoder((4, 84, 84), NATURE_CONVOLUTIONS, 512, "none")
    assert kinds(encoder) == [nn.Conv2d, nn.ReLU] * 3 + [nn.Linear, nn.ReLU]
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 1_684_128  # Mnih et al. 2015 without a head


@pytest.mark.usefixtures("in_float64")
def test_a_cnn_says_the_same_of_pictures_laid_out_either_way():
    encoder = ImageEncoder((4, 10, 10), MINATAR_CONVOLUTIONS, 16, "none")
    planes = torch.rand(3, 4, 10, 10) < 0.3
    torch.testing.assert_close(encoder(planes), encoder(planes.contiguous(memory_format=torch.channels_last)))


def plain(encoder, pictures):
    """What an ImageEncoder computes, with maps as torch lays them out by itself: (channel, row, column)."""
    maps = pictures.float() / (255.0 if pictures.dtype == torch.uint8 else 1.0)
    for layer in encoder.convolutions:
        if isinstance(layer, nn.Conv2d):
            maps = nn.functional.conv2d(maps, layer.weight.contiguous(), layer.bias, layer.stride)
        elif isinstance(layer, NormedMap) and len(layer.norm.normalized_shape) == 1:
            mean, variance = maps.mean(1, keepdim=True), maps.var(1, correction=0, keepdim=True)
            scale, shift = (weight.view(-1, 1, 1) for weight in (layer.norm.weight, layer.norm.bias))
            maps = (scale * (maps - mean) / (variance + 1e-6).sqrt() + shift).relu()
        elif isinstance(layer, NormedMap):
            scale, shift = (weight.permute(2, 0, 1) for weight in (layer.norm.weight, layer.norm.bias))
            maps = nn.functional.layer_norm(maps, maps.shape[1:], scale, shift).relu()
        else:
            maps = maps.relu()
    linear, *rest = encoder.dense
    _, channels, height, width = maps.shape
    weight = linear.weight.view(-1, height, width, channels).permute(0, 3, 1, 2).flatten(1)
    return nn.Sequential(*rest)(nn.functional.linear(maps.flatten(1), weight, linear.bias))


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("norm_over", ["channels", "map", "none"])
@pytest.mark.parametrize(
    ("shape", "convolutions"), [((4, 84, 84), NATURE_CONVOLUTIONS), ((4, 10, 10), MINATAR_CONVOLUTIONS)]
)
def test_the_layout_of_maps_changes_neither_features_nor_gradients(shape, convolutions, norm_over):
    torch.manual_seed(0)
    encoder = ImageEncoder(shape, convolutions, 16, norm_over)
    for parameter in encoder.parameters():  # scales and shifts that tell positions apart
        parameter.data += 0.1 * torch.rand_like(parameter)
    pictures = torch.randint(0, 256, (5, *shape), dtype=torch.uint8)
    fast, slow = encoder(pictures), plain(encoder, pictures)
    torch.testing.assert_close(fast, slow)
    weights = torch.rand(5, 16)
    found, expected = (
        torch.autograd.grad((weights * features).sum(), list(encoder.parameters())) for features in (fast, slow)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_impala_encoder_has_the_published_number_of_parameters():
    assert sum(parameter.numel() for parameter in ImpalaEncoder(PROCGEN).parameters()) == 622_144


@pytest.mark.usefixtures("in_float64")
def test_every_unit_of_the_impala_encoder_begins_with_its_published_length():
    encoder = ImpalaEncoder(PROCGEN)
    residual = math.sqrt((1.0 / math.sqrt(3.0)) / math.sqrt(2.0))
    for layer in encoder.stacks:
        if isinstance(layer, nn.Conv2d):
            assert_norms(layer, 1.0)
        if isinstance(layer, ResidualConvolutions):
            assert_norms(layer.first, residual)
            assert_norms(layer.second, residual)
    assert_norms(encoder.dense, 1.4)


@pytest.mark.usefixtures("in_float64")
def test_rescaling_keeps_the_direction_of_each_unit():
    layer = nn.Linear(6, 3)
    before = nn.functional.normalize(layer.weight.detach().clone(), dim=1)
    rescale_units(layer, 0.1)
    torch.testing.assert_close(layer.weight.detach(), 0.1 * before)


@pytest.mark.usefixtures("in_float64")
def test_the_impala_encoder_is_stacks_then_relu_dense_relu():
    encoder = ImpalaEncoder((3, 17, 10))  # odd sides: the pool must round up as the dense layer expects
    pictures = torch.randint(0, 256, (2, 3, 17, 10), dtype=torch.uint8)
    hidden = pictures / 255.0
    for layer in encoder.stacks:
        if isinstance(layer, ResidualConvolutions):
            hidden = hidden + layer.second(layer.first(hidden.relu()).relu())
        elif isinstance(layer, nn.Conv2d):
            hidden = nn.functional.max_pool2d(layer(hidden), 3, stride=2, padding=1)
    expected = encoder.dense(hidden.flatten(1).relu()).relu()
    torch.testing.assert_close(encoder(pictures), expected)
    assert [type(layer) for layer in encoder.stacks].count(ResidualConvolutions) == 6


def test_a_residual_block_leaves_its_input_as_it_was():
    block = ResidualConvolutions(4)
    hidden = torch.randn(2, 4, 5, 5)
    before = hidden.clone()
    block(hidden)
    assert hidden.equal(before)
