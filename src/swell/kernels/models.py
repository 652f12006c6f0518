"""Compiled networks as learners use them: they share the memory of `flat_parameters` with the modules they stand for.

They are called as the modules are. Where gradients are on, a pass is one operation of autograd, so that any loss can
be written on what comes out.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from swell.kernels import layers
from swell.kernels.layers import Network, Room
from swell.kernels.layout import NotPlainError, Table
from swell.kernels.objectives import Heads
from swell.networks.actor_critics import ActorCritic
from swell.networks.encoders import as_float
from swell.networks.normalizer import ObservationNormalizer

MEMORY_OF_A_PASS = 2**20
"""Bytes of activations and slopes that a pass through a network has at once: about what stays near the processor."""
FEWEST_ROWS, MOST_ROWS = 32, 128
"""Beyond 240 rows of 64 × 64 weights OpenBLAS leaves its way for small matrices, and takes 3.5 times as long."""


def with_one_blas_thread() -> None:
    """SciPy's matrix products, which kernels call, would otherwise wait for threads of their own at every layer."""
    import_module("scipy.linalg.cython_blas")  # what is not loaded yet cannot be told
    ThreadpoolController().select(user_api="blas").limit(limits=1)


class Part:
    """A part of a network: from what goes in to some of its layers, the heads."""

    def __init__(self, model: "CompiledModel", table: Table, *heads: int) -> None:
        if table.takes_pixels and not model.has_pixels:
            raise NotPlainError
        self.takes_pixels = table.takes_pixels
        self.heads = heads
        self._head_array = np.array(heads, np.int64)
        self.network = Network(
            np.array(table.rows, dtype=np.int64),
            np.array(table.epsilons, dtype=np.float32),
            model.flat.detach().numpy(),
            np.array([model.pixel_scale], dtype=np.float32),
        )
        self.widths = [int(self.network.layers[head, layers.OUTPUTS]) for head in heads]
        self.places = table.places
        """From where to where its weights are in the flat vector, [S, 2]."""
        self._places = [int(self.network.layers[head, layers.OUT]) for head in heads]
        self._per_sample = table.floats_per_sample
        self._observation_size = math.prod(model.shape)
        activations, hats, _ = self._per_sample
        rows = MEMORY_OF_A_PASS // (4 * (2 * activations + hats))
        self.room = self.make_room(min(MOST_ROWS, max(FEWEST_ROWS, rows)))
        """For as many samples as are best taken at once."""

    def make_room(self, rows: int) -> Room:
        activations, hats, deviations = self._per_sample
        table = self.network.layers
        weights = np.where(
            table[:, layers.CONVOLVES],
            table[:, layers.FILTERS] * table[:, layers.KERNEL] ** 2 * table[:, layers.CHANNELS],
            table[:, layers.INPUTS] * table[:, layers.OUTPUTS],
        )
        spare = int(weights.max()) + rows * int(table[:, layers.OUTPUTS].max())
        pixels, numbers = (self._observation_size, 0) if self.takes_pixels else (0, self._observation_size)
        return Room(
            inputs=_floats(rows * numbers).reshape(rows, numbers),
            pixels=torch.empty((rows, pixels), dtype=torch.uint8).numpy(),
            activations=_floats(rows * activations),
            hats=_floats(rows * hats),
            deviations=_floats(rows * deviations),
            slopes=_floats(rows * activations),
            spare=_floats(spare),
        )

    def pass_through(self, numbers: np.ndarray, pixels: np.ndarray, outputs: np.ndarray) -> None:
        """From any number of inputs to the heads' outputs [R, n], side by side."""
        layers.pass_through(self.network, self.room, numbers, pixels, self._head_array, outputs)

    def outputs(self, room: Room, count: int) -> list[np.ndarray]:
        """[count, n] of each head."""
        return [self._rows(room.activations, *head, count) for head in zip(self._places, self.widths, strict=True)]

    def slopes(self, room: Room, count: int) -> list[np.ndarray]:
        return [self._rows(room.slopes, *head, count) for head in zip(self._places, self.widths, strict=True)]

    @staticmethod
    def _rows(memory: np.ndarray, place: int, width: int, count: int) -> np.ndarray:
        return memory[place * count : (place + width) * count].reshape(count, width)


def _floats(count: int) -> np.ndarray:
    """Of torch, so that whoever counts the memory of tensors counts these too."""
    return torch.empty(count).numpy()


class CompiledModel:
    """What compiled Q-networks and policies share: inputs, and passes with and without gradient."""

    def __init__(
        self, flat: nn.Parameter, shape: Sequence[int], dtype: np.dtype, normalizer: ObservationNormalizer | None = None
    ) -> None:
        if flat.device.type != "cpu" or flat.dtype != torch.float32:
            raise NotPlainError
        with_one_blas_thread()
        self.flat = flat
        self.shape = tuple(shape)
        self.normalizer = normalizer
        self.has_pixels = len(self.shape) == 3 and (dtype == np.bool_ or dtype == np.uint8) and normalizer is None
        self.is_bytes = dtype == np.uint8
        self.pixel_scale = 1.0 / 255.0 if self.is_bytes else 1.0

    def inputs(self, observations: Tensor, part: Part) -> tuple[np.ndarray, np.ndarray]:
        """[B, D] numbers and [B, P] pixels, of which one has no width."""
        count, size = observations.shape[0], math.prod(self.shape)
        if part.takes_pixels:
            pixels = observations.reshape(count, size).contiguous().view(torch.uint8)
            return np.empty((count, 0), np.float32), pixels.numpy()
        numbers = as_float(observations) if self.normalizer is None else self.normalizer(observations)
        return numbers.reshape(count, size).contiguous().numpy(), np.empty((count, 0), np.uint8)

    def outputs(self, observations: Tensor, part: Part) -> tuple[Tensor, ...]:
        """[B, n] of each head; gradients flow to `flat` where they are on."""
        if torch.is_grad_enabled():
            return _Pass.apply(self.flat, self, part, observations)  # pyright: ignore[reportReturnType]
        numbers, pixels = self.inputs(observations, part)
        outputs = np.empty((observations.shape[0], sum(part.widths)), np.float32)
        part.pass_through(numbers, pixels, outputs)
        return torch.from_numpy(outputs).split(part.widths, dim=1)


class _Pass(torch.autograd.Function):
    """A compiled pass as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, model: CompiledModel, part: Part, observations: Tensor) -> Any:
        numbers, pixels = model.inputs(observations, part)
        count = observations.shape[0]
        room = part.make_room(count)
        room.inputs[:], room.pixels[:] = numbers, pixels
        layers.forward(part.network, room, count)
        ctx.part, ctx.room, ctx.count = part, room, count
        return tuple(torch.from_numpy(outputs.copy()) for outputs in part.outputs(room, count))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        ctx.room.slopes[:] = 0.0  # nobody writes those of a layer whose outputs are only used detached
        for target, given in zip(ctx.part.slopes(ctx.room, ctx.count), slopes, strict=True):
            target[:] = given.numpy()
        gradient = torch.zeros(ctx.part.network.weights.size)
        layers.backward(ctx.part.network, ctx.room, ctx.count, gradient.numpy(), False)
        return gradient, None, None, None


class CompiledQNetwork(CompiledModel):
    """From observations [B, ...] to Q-values [B, A]."""

    def __init__(self, network: nn.Module, flat: nn.Parameter, shape: Sequence[int], dtype: np.dtype) -> None:
        super().__init__(flat, shape, dtype)
        table = Table(flat, shape)
        self.part = Part(self, table, table.add(network))

    def __call__(self, observations: Tensor) -> Tensor:
        return self.outputs(observations, self.part)[0]


class CompiledPolicy(CompiledModel):
    """An ActorCritic; called as one."""

    def __init__(
        self, network: ActorCritic, flat: nn.Parameter, shape: Sequence[int], dtype: np.dtype, sizes: Sequence[int]
    ) -> None:
        """`sizes` are those of the choices that an action is made of; empty for continuous actions."""
        if type(network) is not ActorCritic or network.masks:
            raise NotPlainError
        super().__init__(flat, shape, dtype, network.normalizer)
        self._network = network
        self.both = self._part("policy", "value")
        self.policy_part, self.value_part = self._part("policy"), self._part("value")
        self._auxiliary = None if network.auxiliary_head is None else self._part("policy", "value", "auxiliary")
        place = -1
        if network.log_std is not None:
            place = Table(flat, shape).place(network.log_std)
        self.heads = Heads(self.both.heads[0], self.both.heads[1], place, np.array(sizes, np.int64))

    @property
    def is_dual(self) -> bool:
        """Whether the policy and the values share nothing."""
        return self._network.value_encoder is not None

    def _part(self, *names: str) -> Part:
        network, table = self._network, Table(self.flat, self.shape)
        ends: dict[str, int] = {}
        trunk = None
        if network.value_encoder is None or names != ("value",):
            trunk = table.add(network.policy_encoder)
        if "policy" in names:
            ends["policy"] = table.add(network.policy_head, trunk)
        if "auxiliary" in names and network.auxiliary_head is not None:
            ends["auxiliary"] = table.add(network.auxiliary_head, trunk)
        if "value" in names:
            own = None if network.value_encoder is None else table.add(network.value_encoder)
            pulls = network.architecture != "detached"
            ends["value"] = table.add(network.value_head, trunk if own is None else own, pulls=pulls)
        return Part(self, table, *(ends[name] for name in names))

    def __call__(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        outputs, values = self.outputs(observations, self.both)
        return self._parameters(outputs), values.squeeze(1)

    def policy(self, observations: Tensor) -> Tensor:
        return self._parameters(self.outputs(observations, self.policy_part)[0])

    def value(self, observations: Tensor) -> Tensor:
        return self.outputs(observations, self.value_part)[0].squeeze(1)

    def auxiliary(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self._auxiliary is None:
            raise RuntimeError("this network has no auxiliary head; make it with auxiliary_head=True")
        outputs, values, auxiliary = self.outputs(observations, self._auxiliary)
        return self._parameters(outputs), values.squeeze(1), auxiliary.squeeze(1)

    def _parameters(self, outputs: Tensor) -> Tensor:
        if self.heads.log_std < 0:
            return outputs
        # Of the flat vector itself, to which all gradients of a compiled network go.
        log_std = self.flat[self.heads.log_std : self.heads.log_std + outputs.shape[1]]
        return torch.cat((outputs, log_std.expand_as(outputs)), dim=1)
