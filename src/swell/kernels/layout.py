"""From modules to the table that kernels read; None where a part of a network is of a kind that has no kernel."""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from swell.kernels import layers as column
from swell.networks.encoders import ImageEncoder, NormedMap, VectorEncoder


class NotPlainError(Exception):
    """A module that only autograd can do."""


class Table:
    """Rows that are added layer by layer; see `kernels/layers.py` for what they mean."""

    def __init__(self, flat: Tensor, shape: Sequence[int]) -> None:
        self._flat = flat
        self._shape = tuple(shape)
        self.rows: list[list[int]] = []
        self.epsilons: list[float] = []
        self.takes_pixels = False
        self._taken: dict[int, int] = {}
        """From where to where parameters are in the flat vector."""
        self._places = {column.OUT: 0, column.HAT: 0, column.DEVIATION: 0}

    def add(self, module: nn.Module, source: int | None = None, *, pulls: bool = True) -> int:
        """Adds a module's layers after the layer `source`, returns the last; without a pull `source` learns nothing."""
        last = -1 if source is None else source
        for block in _blocks(_unrolled(module)):
            last = self._add_block(block, last, pulls)
        return last

    def _add_block(self, block: "list[nn.Module]", source: int, pulls: bool) -> int:
        first, *others = block
        row = [0] * column.COLUMNS
        row[column.SOURCE] = source
        row[column.SCALE] = row[column.SHIFT] = -1
        if isinstance(first, nn.Conv2d):
            self._describe_convolution(row, first)
        else:
            self._describe_dense(row, cast(nn.Linear, first))
        row[column.GROUP] = row[column.OUTPUTS]
        epsilon = 0.0
        for module in others:
            if isinstance(module, nn.LayerNorm):
                epsilon = module.eps
                row[column.GROUP] = int(np.prod(module.normalized_shape))
                row[column.SCALE], row[column.SHIFT] = self.place(module.weight), self.place(module.bias)
            else:
                row[column.ACTIVATION] = column.RELU if isinstance(module, nn.ReLU) else column.TANH
        row[column.PULL] = self._pull(source) if pulls else column.NOTHING
        self._give_places(row)
        self.rows.append(row)
        self.epsilons.append(epsilon)
        return len(self.rows) - 1

    def _describe_dense(self, row: list[int], module: nn.Linear) -> None:
        row[column.INPUTS], row[column.OUTPUTS] = module.in_features, module.out_features
        row[column.WEIGHT], row[column.BIAS] = self.place(module.weight), self.place(module.bias)

    def _describe_convolution(self, row: list[int], module: nn.Conv2d) -> None:
        channels, height, width = self._shape
        size = module.kernel_size[0]
        plain = (module.stride, module.padding, module.dilation, module.groups) == ((1, 1), (0, 0), (1, 1), 1)
        if not (plain and module.kernel_size == (size, size) and row[column.SOURCE] < 0):
            raise NotPlainError
        self.takes_pixels = True
        row[column.CONVOLVES] = 1
        row[column.CHANNELS], row[column.HEIGHT], row[column.WIDTH] = channels, height, width
        row[column.KERNEL], row[column.FILTERS] = size, module.out_channels
        places = (height - size + 1) * (width - size + 1)
        row[column.INPUTS], row[column.OUTPUTS] = channels * height * width, places * module.out_channels
        weight = module.weight
        if not weight.permute(0, 2, 3, 1).is_contiguous():
            raise NotPlainError
        row[column.WEIGHT], row[column.BIAS] = self.place(weight, any_order=True), self.place(module.bias)

    def _pull(self, source: int) -> int:
        if source < 0:
            return column.NOTHING
        # The backward pass goes from the last layer to the first: the one added last writes, those before it add.
        for row in self.rows:
            if row[column.SOURCE] == source and row[column.PULL]:
                row[column.PULL] = column.ADDS
        return column.WRITES

    def _give_places(self, row: list[int]) -> None:
        outputs = row[column.OUTPUTS]
        row[column.OUT] = self._places[column.OUT]
        self._places[column.OUT] += outputs
        if row[column.SCALE] >= 0:
            row[column.HAT], row[column.DEVIATION] = self._places[column.HAT], self._places[column.DEVIATION]
            self._places[column.HAT] += outputs
            self._places[column.DEVIATION] += outputs // row[column.GROUP]

    def place(self, parameter: Tensor | None, *, any_order: bool = False) -> int:
        """Where a parameter starts in the flat vector."""
        if parameter is None or not parameter.requires_grad or parameter.dtype != torch.float32:
            raise NotPlainError
        if not (any_order or parameter.is_contiguous()):
            raise NotPlainError
        offset = parameter.data_ptr() - self._flat.data_ptr()
        if not 0 <= offset <= self._flat.nbytes - parameter.nbytes:
            raise NotPlainError
        start = offset // self._flat.element_size()
        if start in self._taken:  # a layer that is used twice: its two gradients would have to be added
            raise NotPlainError
        self._taken[start] = start + parameter.numel()
        return start

    @property
    def places(self) -> np.ndarray:
        """From where to where its parameters are in the flat vector, int64 [S, 2]; neighbours are one row."""
        rows: list[list[int]] = []
        for start, end in sorted(self._taken.items()):
            if rows and rows[-1][1] == start:
                rows[-1][1] = end
            else:
                rows.append([start, end])
        return np.array(rows, np.int64)

    @property
    def floats_per_sample(self) -> tuple[int, int, int]:
        """Of activations, of normalised sums and of deviations."""
        return self._places[column.OUT], self._places[column.HAT], self._places[column.DEVIATION]


def _unrolled(module: nn.Module) -> list[nn.Module]:
    """Encoders and sequences become their parts; exactly these kinds, since a subclass may do something else."""
    kind = type(module)
    if kind is nn.Identity:
        return []
    if kind is nn.Sequential:
        return [part for child in cast(Iterable[nn.Module], module) for part in _unrolled(child)]
    if kind is VectorEncoder:
        return _unrolled(cast(VectorEncoder, module).blocks)
    if kind is ImageEncoder:
        images = cast(ImageEncoder, module)
        return [*_unrolled(images.convolutions), *_unrolled(images.dense)]
    if kind is NormedMap:
        return [cast(NormedMap, module).norm, nn.ReLU()]
    return [module]


def _blocks(modules: "list[nn.Module]") -> "list[list[nn.Module]]":
    """Each a dense layer or a convolution, then a norm if there is one, then an activation if there is one."""
    blocks: list[list[nn.Module]] = []
    for module in modules:
        kind = type(module)
        if kind in (nn.Linear, nn.Conv2d):
            blocks.append([module])
        elif not blocks or kind not in (nn.LayerNorm, nn.ReLU, nn.Tanh):
            raise NotPlainError
        elif isinstance(module, nn.LayerNorm) and len(blocks[-1]) > 1:
            raise NotPlainError  # a norm after an activation, or a second one
        elif isinstance(blocks[-1][-1], nn.ReLU | nn.Tanh):
            raise NotPlainError
        else:
            blocks[-1].append(module)
    return blocks
