"""Networks on observations that are made of parts, and on those that say which actions are allowed."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

FORBIDDEN = -1e8
"""Q-value or logit of an action that is not allowed: finite, so that no probability of zero makes a NaN."""


def structure_of(observation_space: object) -> dict[str, Any]:
    """What a space says of its vectors: the parts that they are made of, and how many allowed actions end them."""
    return {"parts": getattr(observation_space, "parts", ()), "masks": getattr(observation_space, "masks", 0)}


def without_masks(shape: Sequence[int], masks: int) -> tuple[int, ...]:
    """The shape of what is left of an observation when the allowed actions at its end are taken off."""
    return (shape[0] - masks,) if masks else tuple(shape)


def allowed_only(outputs: Tensor, observations: Tensor, masks: int) -> Tensor:
    """Q-values or logits [B, A], FORBIDDEN where the last A numbers of an observation are 0; no gradient goes there."""
    return outputs.masked_fill(observations[:, -masks:] < 0.5, FORBIDDEN)


class MaskedQNetwork(nn.Module):
    """A Q-network on observations whose last numbers are the allowed actions, which it does not see itself."""

    def __init__(self, network: nn.Module, masks: int) -> None:
        super().__init__()
        self.network = network
        self.masks = masks

    def forward(self, observations: Tensor) -> Tensor:
        return allowed_only(self.network(observations[:, : -self.masks]), observations, self.masks)


class PartsEncoder(nn.Module):
    """An encoder for each image of a flat observation, one for all the rest of it, and their features side by side."""

    def __init__(
        self, parts: Sequence[Sequence[int]], images: Sequence[nn.Module | None], rest: nn.Module | None
    ) -> None:
        """`images` has the encoder of each part, None where the part belongs to the rest."""
        super().__init__()
        self._shapes = [tuple(shape) for shape in parts]
        self._sizes = [math.prod(shape) for shape in parts]
        self._is_image = [image is not None for image in images]
        self.images = nn.ModuleList([image for image in images if image is not None])
        self.rest = rest
        encoders = [*self.images, *([] if rest is None else [rest])]
        self.features = sum(_features(encoder) for encoder in encoders)

    def forward(self, observations: Tensor) -> Tensor:
        parts = observations.split(self._sizes, dim=1)
        shown = [part.unflatten(1, shape) for part, shape in self._of_kind(parts, True)]
        features = [encoder(image) for encoder, image in zip(self.images, shown, strict=True)]
        if self.rest is not None:
            features.append(self.rest(torch.cat([part for part, _ in self._of_kind(parts, False)], dim=1)))
        return torch.cat(features, dim=1)

    def _of_kind(self, parts: Sequence[Tensor], images: bool) -> list[tuple[Tensor, tuple[int, ...]]]:
        both = zip(parts, self._shapes, self._is_image, strict=True)
        return [(part, shape) for part, shape, is_image in both if is_image == images]


def _features(encoder: nn.Module) -> int:
    """Of an encoder itself, or of one behind a module that only turns its images."""
    last = encoder[-1] if isinstance(encoder, nn.Sequential) else encoder
    return int(last.features)  # pyright: ignore[reportArgumentType]
