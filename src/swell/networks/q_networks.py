"""The networks that presets name: which encoder a name stands for, and Q-heads on it."""

import math
from collections.abc import Sequence

from torch import nn

from swell.config.imports import imported_maker
from swell.config.learners import MultiSkipHead, NetworkSettings, PQNSettings
from swell.config.validation import is_import
from swell.errors import ConfigError
from swell.networks.encoders import (
    IMPALA_HEAD_NORM,
    MINATAR_CONVOLUTIONS,
    NATURE_CONVOLUTIONS,
    WIDE_CONVOLUTIONS,
    ChannelsFirst,
    ImageEncoder,
    ImpalaEncoder,
    MultiSkipEncoder,
    OwnEncoder,
    PostActivationBlock,
    PreActivationBlock,
    VectorEncoder,
    dense_block,
    he_normal,
    orthogonal,
    rescale_units,
)
from swell.networks.parts import MaskedQNetwork, PartsEncoder, without_masks

Encoder = VectorEncoder | ImageEncoder | ImpalaEncoder | OwnEncoder | PartsEncoder
SMALLEST_NATURE_IMAGE = 36
SMALLEST_IMAGES = {"minatar-cnn": 3, "impala-cnn": 8}
MULTI_SKIP_WIDTH = 512
MULTI_SKIP_BLOCKS = {"pqn-l": 5, "pqn-xl": 10}


Parts = Sequence[Sequence[int]]
"""Shapes that follow each other in a flat observation; empty where it is no more than a vector."""


def resolve_network(name: str, shape: Sequence[int], parts: Parts = ()) -> str:
    """The network that `auto` stands for: by the shape of one observation, or of the largest image in it."""
    if name != "auto":
        return name
    shape = max(filter(is_image, parts), key=math.prod, default=shape)
    if len(shape) != 3:
        return "mlp"
    sides = shape[:2] if is_channels_last(shape) else shape[1:]
    return "nature-cnn" if min(sides) >= SMALLEST_NATURE_IMAGE else "minatar-cnn"


def make_q_network(
    settings: PQNSettings, shape: Sequence[int], num_actions: int, parts: Parts = (), masks: int = 0
) -> nn.Module:
    """A module from observations [B, *shape] to Q-values [B, num_actions].

    Flat observations may be made of `parts`, and end in `masks` numbers that say which actions are allowed.
    """
    if masks:
        seen = make_q_network(settings, without_masks(shape, masks), num_actions, parts)
        return MaskedQNetwork(seen, masks)
    name = resolve_network(settings.network, shape, parts)
    if is_channels_last(shape) and not is_import(name):
        return nn.Sequential(ChannelsFirst(), make_q_network(settings, channels_first(shape), num_actions))
    if name in MULTI_SKIP_BLOCKS:
        require_fit(name, shape, parts)
        return _multi_skip(shape, num_actions, MULTI_SKIP_BLOCKS[name], settings.multi_skip_head)
    encoder = make_encoder(name, settings, shape, parts)
    head = nn.Linear(encoder.features, num_actions)
    if name == "impala-cnn":
        rescale_units(head, IMPALA_HEAD_NORM)
        return nn.Sequential(encoder, head)
    trained = head if is_import(name) else nn.Sequential(encoder, head)
    trained.apply(he_normal if settings.norm_over == "channels" else orthogonal)
    if settings.norm_over == "channels":
        nn.init.normal_(head.weight, std=encoder.features**-0.5)  # Flax's default for the last layer
    return nn.Sequential(encoder, head)


def make_encoder(name: str, settings: NetworkSettings, shape: Sequence[int], parts: Parts = ()) -> Encoder:
    """The encoder that a network of this name has, for observations of `shape` with channels first.

    `hidden` and `activation` concern the mlp only; `norm_over` all but the impala-cnn, which has no norms. Of `parts`
    each image has such an encoder of its own, and all else an mlp; a network mlp, or one of your own, takes them flat.
    """
    if is_import(name):
        make = imported_maker(name, "network")
        is_other_class = isinstance(make, type) and not issubclass(make, nn.Module)
        made = None if is_other_class else make(tuple(shape))
        if not isinstance(made, nn.Module):
            raise ConfigError(f"network {name} must make a torch module of the shape of an observation")
        return OwnEncoder(made, shape)
    if parts and name != "mlp":
        return _parts_encoder(name, settings, parts)
    require_fit(name, shape)
    if name == "mlp":
        return VectorEncoder(math.prod(shape), settings.hidden, settings.norm_over, settings.activation)
    if name == "minatar-cnn":
        return ImageEncoder(shape, MINATAR_CONVOLUTIONS, 128, settings.norm_over)
    if name == "impala-cnn":
        return ImpalaEncoder(shape)
    return ImageEncoder(shape, NATURE_CONVOLUTIONS, 512, settings.norm_over)


def _parts_encoder(name: str, settings: NetworkSettings, parts: Parts) -> PartsEncoder:
    images = [_image_encoder(name, settings, shape) if is_image(shape) else None for shape in parts]
    rest = sum(math.prod(shape) for shape, image in zip(parts, images, strict=True) if image is None)
    return PartsEncoder(parts, images, make_encoder("mlp", settings, (rest,)) if rest else None)


def _image_encoder(name: str, settings: NetworkSettings, shape: Sequence[int]) -> nn.Module:
    """For an image among other parts: small ones have the small network, whatever the large ones have."""
    name = resolve_network("auto", shape) if name == "nature-cnn" else name
    if is_channels_last(shape):
        return nn.Sequential(ChannelsFirst(), make_encoder(name, settings, channels_first(shape)))
    return make_encoder(name, settings, shape)


def require_fit(name: str, shape: Sequence[int], parts: Parts = ()) -> None:
    """Says it in words where the convolutions would only fail to multiply."""
    if parts:
        raise ConfigError(
            f"network {name} is for one image, got observations of {len(parts)} parts; try --network auto"
        )
    smallest = SMALLEST_IMAGES.get(name, SMALLEST_NATURE_IMAGE)
    if name != "mlp" and (len(shape) != 3 or min(shape[1:]) < smallest):
        wanted = f"images of at least {smallest} × {smallest}"
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


def is_image(shape: Sequence[int]) -> bool:
    """Whether there is room for the smallest convolutions."""
    if len(shape) != 3:
        return False
    return min(shape[:2] if is_channels_last(shape) else shape[1:]) >= SMALLEST_IMAGES["minatar-cnn"]


def is_channels_last(shape: Sequence[int]) -> bool:
    """Images in colour or grey, with the channels behind; stacked frames and planes come first."""
    return len(shape) == 3 and shape[2] in (1, 3) and min(shape[:2]) > shape[2]


def channels_first(shape: Sequence[int]) -> tuple[int, int, int]:
    """The shape of an image after ChannelsFirst."""
    height, width, channels = shape
    return channels, height, width
