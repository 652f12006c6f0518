"""Heads on encoders, and the Q-networks that presets name."""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from swell.errors import ConfigError
from swell.networks.encoders import (
    MINATAR_CONVOLUTIONS,
    NATURE_CONVOLUTIONS,
    WIDE_CONVOLUTIONS,
    ChannelsFirst,
    ImageEncoder,
    MultiSkipEncoder,
    NormOver,
    PostActivationBlock,
    PreActivationBlock,
    VectorEncoder,
    dense_block,
    he_normal,
    orthogonal,
)

NetworkName = Literal["auto", "mlp", "minatar-cnn", "nature-cnn", "pqn-l", "pqn-xl"]
MultiSkipHead = Literal["original", "release"]
SMALLEST_NATURE_IMAGE = 36
MULTI_SKIP_WIDTH = 512
MULTI_SKIP_BLOCKS = {"pqn-l": 5, "pqn-xl": 10}


def resolve_network(name: NetworkName, shape: Sequence[int]) -> NetworkName:
    """The network that `auto` stands for: by the shape of one observation."""
    if name != "auto":
        return name
    if len(shape) != 3:
        return "mlp"
    sides = shape[:2] if _is_channels_last(shape) else shape[1:]
    return "nature-cnn" if min(sides) >= SMALLEST_NATURE_IMAGE else "minatar-cnn"


def make_q_network(
    name: NetworkName,
    shape: Sequence[int],
    num_actions: int,
    hidden: Sequence[int],
    norm_over: NormOver,
    multi_skip_head: MultiSkipHead,
) -> nn.Module:
    """A module from observations [B, *shape] to Q-values [B, num_actions]."""
    if _is_channels_last(shape):
        height, width, channels = shape
        turned = (channels, height, width)
        return nn.Sequential(
            ChannelsFirst(), make_q_network(name, turned, num_actions, hidden, norm_over, multi_skip_head)
        )
    name = resolve_network(name, shape)
    require_fit(name, shape)
    if name in MULTI_SKIP_BLOCKS:
        return _multi_skip(shape, num_actions, MULTI_SKIP_BLOCKS[name], multi_skip_head)
    if name == "mlp":
        encoder = VectorEncoder(_product(shape), hidden)
    elif name == "minatar-cnn":
        encoder = ImageEncoder(shape, MINATAR_CONVOLUTIONS, 128, norm_over)
    else:
        encoder = ImageEncoder(shape, NATURE_CONVOLUTIONS, 512, norm_over)
    head = nn.Linear(encoder.features, num_actions)
    network = nn.Sequential(encoder, head)
    network.apply(he_normal if norm_over == "channels" else orthogonal)
    if norm_over == "channels":
        nn.init.normal_(head.weight, std=encoder.features**-0.5)  # Flax's default for the last layer
    return network


def require_fit(name: NetworkName, shape: Sequence[int]) -> None:
    """Says it in words where the convolutions would only fail to multiply."""
    smallest = {"mlp": 0, "minatar-cnn": 3}.get(name, SMALLEST_NATURE_IMAGE)
    if name != "mlp" and (len(shape) != 3 or min(shape[1:]) < smallest):
        wanted = f"pictures of at least {smallest} × {smallest}"
        raise ConfigError(
            f"network {name} needs {wanted}, got observations of shape {tuple(shape)}; try --network auto"
        )


def _multi_skip(shape: Sequence[int], num_actions: int, num_blocks: int, head: MultiSkipHead) -> nn.Module:
    """PQN-L and PQN-XL.

    The head of the original paper (arXiv 2506.15544) is a dense block and a linear layer. The `release` of ABS emits Q
    directly and normalises it over the actions, so that the size of a state's value hardly depends on the state.
    """
    width = MULTI_SKIP_WIDTH
    block = PreActivationBlock if head == "original" else PostActivationBlock
    images = ImageEncoder(shape, WIDE_CONVOLUTIONS, 0, "map")
    encoder = MultiSkipEncoder(images, width, [block(width) for _ in range(num_blocks)])
    if head == "original":
        network = nn.Sequential(encoder, dense_block(width, width), nn.Linear(width, num_actions))
        network.apply(orthogonal)
        orthogonal(network[-1], gain=0.01)
        return network
    network = nn.Sequential(encoder, nn.Linear(width, num_actions), nn.LayerNorm(num_actions))
    network.apply(orthogonal)
    return network


def _is_channels_last(shape: Sequence[int]) -> bool:
    """Pictures in colour or grey, with the channels behind; stacked frames and planes come first."""
    return len(shape) == 3 and shape[2] in (1, 3) and min(shape[:2]) > shape[2]


def _product(shape: Sequence[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
