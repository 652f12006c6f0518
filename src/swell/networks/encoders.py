"""Encoders: from observations in the env's own dtype to a feature vector."""

import copy
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from swell.config.learners import Activation, NormOver
from swell.config.seeds import derive_seed
from swell.errors import ConfigError

Network = TypeVar("Network", bound=nn.Module)
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def seeded(seed: int, make: Callable[[], Network]) -> Network:
    """A network whose weights come from their own seed; torch's global generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "network"))
        return make()


def as_float(observations: Tensor, memory_format: torch.memory_format = torch.preserve_format) -> Tensor:
    """Bytes become numbers in [0, 1]; all else is only cast, to the dtype that torch makes networks in."""
    numbers = observations.to(torch.get_default_dtype(), memory_format=memory_format)
    return numbers.div_(255.0) if observations.dtype == torch.uint8 else numbers


class NormedMap(nn.Module):
    """relu(LayerNorm(maps)) of [B, C, H, W], over the channels of each pixel or over the whole map.

    The maps are channels-last in memory: convolutions are fastest so, and a norm reads their rows without transposing
    them. Over the whole map, scale and shift have that order too.
    """

    def __init__(self, channels: int, height: int, width: int, norm_over: NormOver) -> None:
        super().__init__()
        # Each with the ε of its origin: Flax, where PQN was written, and torch.
        over_channels = norm_over == "channels"
        self.norm = nn.LayerNorm(channels, eps=1e-6) if over_channels else nn.LayerNorm([height, width, channels])

    def forward(self, maps: Tensor) -> Tensor:
        return torch.relu_(self.norm(maps.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def dense_block(
    inputs: int, outputs: int, norm_over: NormOver = "channels", activation: Activation = "relu"
) -> nn.Sequential:
    """Linear, LayerNorm unless `norm_over` is none, activation."""
    norms = [] if norm_over == "none" else [nn.LayerNorm(outputs)]
    return nn.Sequential(nn.Linear(inputs, outputs), *norms, ACTIVATIONS[activation]())


class ChannelsFirst(nn.Module):
    """[B, H, W, C] to [B, C, H, W], for envs that return images as screens do."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2)


class VectorEncoder(nn.Module):
    """Dense blocks on a flat observation."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        norm_over: NormOver = "channels",
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        sizes = [inputs, *hidden]
        blocks = (dense_block(before, after, norm_over, activation) for before, after in pairwise(sizes))
        self.blocks = nn.Sequential(*blocks)
        self.features = sizes[-1]

    def forward(self, observations: Tensor) -> Tensor:
        return self.blocks(as_float(observations).flatten(1))


@torch.no_grad()
def tried(network: nn.Module, observations: Tensor) -> tuple[int, ...]:
    """The shape of what a network of the user's own makes of observations; where it cannot, its error in one line."""
    try:
        # A copy: to try a network must change nothing in it.
        return tuple(copy.deepcopy(network).eval()(observations).shape)
    except Exception as error:
        shape, words = list(observations.shape), str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(f"the network cannot take observations of shape {shape}: {words}") from error


class OwnEncoder(nn.Module):
    """An encoder of the user's own, which is given observations as float32, bytes in [0, 1]."""

    def __init__(self, encoder: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.encoder = encoder
        outputs = tried(encoder, torch.zeros(1, *shape))
        if len(outputs) != 2:
            raise ConfigError(f"the network must map observations [B, ...] to features [B, F], got {list(outputs)}")
        self.features = outputs[1]

    def forward(self, observations: Tensor) -> Tensor:
        return self.encoder(as_float(observations))


class ImageEncoder(nn.Module):
    """Convolutions, each with its norm and ReLU, on [B, C, H, W]; then one dense block if `hidden` is positive.

    All maps are channels-last in memory, and the last one is flattened in that order: (row, column, channel).
    Transposing it, forward and backward, took a fifth of MinAtar's update.
    """

    def __init__(
        self,
        shape: Sequence[int],
        convolutions: Sequence[tuple[int, int, int]],
        hidden: int,
        norm_over: NormOver,
    ) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        for filters, kernel, stride in convolutions:
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
            layers.append(nn.Conv2d(channels, filters, kernel, stride))
            layers.append(nn.ReLU() if norm_over == "none" else NormedMap(filters, height, width, norm_over))
            channels = filters
        self.convolutions = nn.Sequential(*layers)
        self.convolutions.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        flat = channels * height * width
        self.dense = dense_block(flat, hidden, norm_over) if hidden > 0 else nn.Identity()
        self.features = hidden if hidden > 0 else flat

    def forward(self, observations: Tensor) -> Tensor:
        maps = self.convolutions(as_float(observations, torch.channels_last))
        return self.dense(maps.permute(0, 2, 3, 1).flatten(1))


NATURE_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""(filters, kernel, stride) of Mnih et al. 2015."""
WIDE_CONVOLUTIONS = ((64, 8, 4), (128, 4, 2), (128, 3, 1))
"""Twice the filters, for PQN-L and PQN-XL."""
MINATAR_CONVOLUTIONS = ((16, 3, 1),)
IMPALA_STACKS = (16, 32, 32)
"""Filters of each stack; every stack halves the map."""
IMPALA_BLOCKS = 2
"""Residual blocks in each stack."""
IMPALA_FEATURES = 256
IMPALA_HEAD_NORM = 0.1
"""The length of each row of a head on these features, beside the lengths that the encoder gives itself."""


class ResidualConvolutions(nn.Module):
    """h + conv(relu(conv(relu(h)))) with 3×3 kernels that keep the size of the map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.second(torch.relu_(self.first(torch.relu(hidden))))


class ImpalaEncoder(nn.Module):
    """The residual CNN of IMPALA (arXiv 1802.01561) on [B, C, H, W], initialised as in PPG (arXiv 2009.04416).

    Three stacks of conv 3×3, max-pool that halves the map, two residual blocks; then relu, dense, relu. Every output
    unit starts with a weight vector of fixed length, so that no layer changes the size of its input by much.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        for filters in IMPALA_STACKS:
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += [ResidualConvolutions(filters) for _ in range(IMPALA_BLOCKS)]
            channels, height, width = filters, (height + 1) // 2, (width + 1) // 2
        self.stacks = nn.Sequential(*layers)
        self.dense = nn.Linear(channels * height * width, IMPALA_FEATURES)
        self.features = IMPALA_FEATURES
        self._initialise()
        self.stacks.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    def _initialise(self) -> None:
        # The residual branches of a whole network add up: each is as long as keeps their sum near one.
        residual_norm = math.sqrt(1.0 / math.sqrt(len(IMPALA_STACKS)) / math.sqrt(IMPALA_BLOCKS))
        for layer in self.stacks:
            if isinstance(layer, nn.Conv2d):
                rescale_units(layer, 1.0)
            elif isinstance(layer, ResidualConvolutions):
                rescale_units(layer.first, residual_norm)
                rescale_units(layer.second, residual_norm)
        rescale_units(self.dense, 1.4)

    def forward(self, observations: Tensor) -> Tensor:
        images = as_float(observations, torch.channels_last)
        return torch.relu_(self.dense(torch.relu(self.stacks(images).flatten(1))))


class PreActivationBlock(nn.Module):
    """h + LN(W₁ relu(LN(W₀ relu(h)))), as in arXiv 2506.15544."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.residual(hidden)


class PostActivationBlock(nn.Module):
    """relu(h + LN(W₂ relu(LN(W₁ h)))), as in the public release of ABS."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.relu(hidden + self.residual(hidden))


class MultiSkipEncoder(nn.Module):
    """A deep residual MLP on image features; every block also gets the projected features g (the global skip)."""

    def __init__(self, images: ImageEncoder, width: int, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.images = images
        self.project = nn.Sequential(nn.Linear(images.features, width), nn.LayerNorm(width))
        self.blocks = nn.ModuleList(blocks)
        self.features = width

    def forward(self, observations: Tensor) -> Tensor:
        skip = self.project(self.images(observations))
        hidden = skip
        for block in self.blocks:
            hidden = block(hidden) + skip
        return hidden


def orthogonal(module: nn.Module, gain: float = math.sqrt(2.0)) -> None:
    """Orthogonal weights and zero biases, as CleanRL."""
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        # torch cannot do it in place on channels-last weights
        weight = torch.empty_like(module.weight, memory_format=torch.contiguous_format)
        with torch.no_grad():
            module.weight.copy_(nn.init.orthogonal_(weight, gain))
        _zero_bias(module)


def he_normal(module: nn.Module) -> None:
    """Weights of variance 2 / fan-in and zero biases, as the PQN authors."""
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        _zero_bias(module)


def rescale_units(module: nn.Linear | nn.Conv2d, norm: float) -> None:
    """Each output unit's weight vector keeps its direction and gets the L2 length `norm`; biases become zero."""
    with torch.no_grad():
        weight = module.weight
        weight.mul_(norm / torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.ndim)), keepdim=True))
    _zero_bias(module)


def _zero_bias(module: nn.Linear | nn.Conv2d) -> None:
    if module.bias is not None:
        nn.init.zeros_(module.bias)
