"""Gradients of plain networks, written out layer by layer.

Autograd records every operation and plays it back; on a small network that takes longer than the arithmetic. The
layers of most of our networks need a line or two each. What they add to `.grad` is what `backward` would add, but for
rounding, and tests hold that.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from swell.networks.actor_critics import ActorCritic
from swell.networks.encoders import ChannelsFirst, ImageEncoder, NormedMap, VectorEncoder, as_float

Tape = list[Any]
"""What the layers of a forward pass leave for the backward pass: last in, first out."""


class Layer(Protocol):
    """One step of a chain. The backward pass adds to the gradients of its parameters, as autograd does."""

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor: ...

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        """From ∂loss/∂outputs to ∂loss/∂inputs; what it returns means nothing where it is not `wanted`."""
        ...


class Chain:
    """Layers one after the other. Its tensors share their memory with those of the modules it was made of."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        first_trained = next(number for number, layer in enumerate(layers) if not isinstance(layer, _Input))
        self._backward_layers = [(layer, number > first_trained) for number, layer in enumerate(layers)][
            first_trained:
        ][::-1]

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        """The outputs; gradients are never recorded, so call it where they are off."""
        for layer in self._layers:
            inputs = layer.forward(inputs, tape)
        return inputs

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool = False) -> Tensor:
        for layer, needed in self._backward_layers:
            slopes = layer.backward(slopes, tape, needed or wanted)
        return slopes


def chain_of(*modules: nn.Module) -> Chain | None:
    """The modules one after the other, or None if one of them is of a kind that only autograd can do.

    Each parameter needs its `.grad`, and neither may be replaced afterwards; see `flat_parameters`.
    """
    layers = [_layer(module) if _is_plain(module) else None for module in _unrolled(modules)]
    if None in layers or not _may_work_in_place(layers):
        return None
    return Chain(cast("list[Layer]", layers))


def _is_plain(module: nn.Module) -> bool:
    """Of exactly a kind that is known, since a subclass may do something else, with all parameters in training."""
    if type(module) is NormedMap:
        return _is_plain(module.norm)
    if isinstance(module, nn.Linear | nn.Conv2d | nn.LayerNorm):
        parameters = cast("list[nn.Parameter | None]", [module.weight, module.bias])
        if not all(parameter is not None and parameter.requires_grad for parameter in parameters):
            return False
    return type(module) in LAYERS


def _may_work_in_place(layers: "Sequence[Layer | None]") -> bool:
    """Whether what an activation overwrites is neither the observations nor kept by the layer before it."""
    before = (None, *layers)
    return all(
        isinstance(earlier, _Linear | _Convolution | _Norm)
        for earlier, layer in zip(before, layers, strict=False)
        if isinstance(layer, _ReLU | _Tanh)
    )


def _unrolled(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Encoders and sequences become their parts, with what their `forward` does between them."""
    unrolled: list[nn.Module] = []
    for module in modules:
        if type(module) not in (nn.Sequential, VectorEncoder, ImageEncoder, nn.Identity):
            unrolled.append(module)
            continue
        match module:
            case nn.Sequential():
                unrolled += _unrolled(list(module))
            case VectorEncoder():
                unrolled += [_Vectors(), *_unrolled([module.blocks])]
            case ImageEncoder():
                unrolled += [_Images(), *_unrolled([module.convolutions]), _Flattened(), *_unrolled([module.dense])]
            case nn.Identity():
                pass
            case _:
                unrolled.append(module)
    return unrolled


def _layer(module: nn.Module) -> Layer | None:
    match module:
        case _Input() | _Flattened():
            return module
        case ChannelsFirst():
            return _Turned()
        case nn.Linear():
            return _Linear(module)
        case nn.Conv2d(padding=(0, 0), dilation=(1, 1), groups=1):
            return _Convolution(module)
        case nn.LayerNorm():
            return _Norm(module)
        case NormedMap():
            return _NormedMap(module)
        case nn.ReLU():
            return _ReLU()
        case nn.Tanh():
            return _Tanh()
        case _:
            return None


class _Input(nn.Module):
    """A layer before all trained ones: the backward pass never reaches it."""

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        raise NotImplementedError

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        return slopes


class _Turned(_Input):
    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        return inputs.permute(0, 3, 1, 2)


class _Vectors(_Input):
    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        return as_float(inputs).flatten(1)


class _Images(_Input):
    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        return as_float(inputs, torch.channels_last)


class _Flattened(nn.Module):
    """[B, C, H, W] to [B, H · W · C]."""

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        rows = inputs.permute(0, 2, 3, 1)
        tape.append(rows.shape)
        return rows.flatten(1)

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        return slopes.view(tape.pop()).permute(0, 3, 1, 2)


LAYERS = (
    _Vectors,
    _Images,
    _Flattened,
    ChannelsFirst,
    nn.Linear,
    nn.Conv2d,
    nn.LayerNorm,
    NormedMap,
    nn.ReLU,
    nn.Tanh,
)
"""The kinds of modules that `_layer` knows."""


class _Trained:
    """The weight and the bias of a layer, with their gradients."""

    def __init__(self, module: nn.Linear | nn.Conv2d | nn.LayerNorm) -> None:
        weight, bias = module.weight, module.bias
        assert weight.grad is not None and bias is not None and bias.grad is not None
        self.weight, self.bias = weight.detach(), bias.detach()
        self.weight_gradient, self.bias_gradient = weight.grad, bias.grad


class _Linear(_Trained):
    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        tape.append(inputs)
        return torch.addmm(self.bias, inputs, self.weight.t())

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        self.weight_gradient.addmm_(slopes.t(), tape.pop())
        self.bias_gradient.add_(slopes.sum(0))
        return slopes.mm(self.weight) if wanted else slopes


class _Convolution(_Trained):
    def __init__(self, module: nn.Conv2d) -> None:
        super().__init__(module)
        self._stride = (module.stride[0], module.stride[1])

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        tape.append(inputs)
        return torch.conv2d(inputs, self.weight, self.bias, self._stride)

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        input_slopes, weight_slopes, bias_slopes = torch.ops.aten.convolution_backward(
            slopes,
            tape.pop(),
            self.weight,
            bias_sizes=self.bias.shape,
            stride=self._stride,
            padding=(0, 0),
            dilation=(1, 1),
            transposed=False,
            output_padding=(0, 0),
            groups=1,
            output_mask=(wanted, True, True),
        )
        self.weight_gradient.add_(weight_slopes)
        self.bias_gradient.add_(bias_slopes)
        return input_slopes


class _Norm(_Trained):
    def __init__(self, module: nn.LayerNorm) -> None:
        super().__init__(module)
        self._shape, self._epsilon = module.normalized_shape, module.eps

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        outputs, mean, deviation = torch.native_layer_norm(inputs, self._shape, self.weight, self.bias, self._epsilon)
        tape.append((inputs, mean, deviation))
        return outputs

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        inputs, mean, deviation = tape.pop()
        input_slopes, weight_slopes, bias_slopes = torch.ops.aten.native_layer_norm_backward(
            slopes, inputs, self._shape, mean, deviation, self.weight, self.bias, (True, True, True)
        )
        self.weight_gradient.add_(weight_slopes)
        self.bias_gradient.add_(bias_slopes)
        return input_slopes


class _ReLU:
    """In place: no layer before it keeps its own outputs."""

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        tape.append(inputs.relu_())
        return inputs

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        return torch.ops.aten.threshold_backward(slopes, tape.pop(), 0)


class _Tanh:
    """In place, as _ReLU."""

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        tape.append(inputs.tanh_())
        return inputs

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        return torch.ops.aten.tanh_backward(slopes, tape.pop())


class _NormedMap:
    def __init__(self, module: NormedMap) -> None:
        self._norm, self._relu = _Norm(module.norm), _ReLU()

    def forward(self, inputs: Tensor, tape: Tape) -> Tensor:
        rows = self._norm.forward(inputs.permute(0, 2, 3, 1), tape)
        return self._relu.forward(rows, tape).permute(0, 3, 1, 2)

    def backward(self, slopes: Tensor, tape: Tape, wanted: bool) -> Tensor:
        rows = self._relu.backward(slopes.permute(0, 2, 3, 1), tape, wanted)
        return self._norm.backward(rows, tape, wanted).permute(0, 3, 1, 2)


class PolicyChain:
    """An ActorCritic as chains: two of them, or a common trunk with two heads."""

    def __init__(self, network: ActorCritic, trunk: Chain | None, policy: Chain, value: Chain) -> None:
        self._network = network
        self._trunk = trunk
        self._policy = policy
        self._value = value
        self._values_train_trunk = network.architecture == "shared"

    def forward(self, observations: Tensor, tape: Tape) -> tuple[Tensor, Tensor]:
        """Policy parameters [B, P] and values [B]."""
        network = self._network
        inputs = observations if network.normalizer is None else network.normalizer(observations)
        if self._trunk is not None:
            inputs = self._trunk.forward(inputs, tape)
        parameters = self._policy.forward(inputs, tape)
        if network.log_std is not None:
            parameters = torch.cat((parameters, network.log_std.expand_as(parameters)), dim=1)
        return parameters, self._value.forward(inputs, tape).squeeze(1)

    def backward(self, parameter_slopes: Tensor, value_slopes: Tensor, tape: Tape) -> None:
        """Adds to the gradients, from ∂loss/∂parameters [B, P] and ∂loss/∂values [B]."""
        wanted = self._trunk is not None
        from_values = self._value.backward(value_slopes.unsqueeze(1), tape, wanted)
        if self._network.log_std is not None:
            parameter_slopes, log_std_slopes = parameter_slopes.chunk(2, 1)
            gradient = self._network.log_std.grad
            assert gradient is not None
            gradient.add_(log_std_slopes.sum(0))
        from_policy = self._policy.backward(parameter_slopes, tape, wanted)
        if self._trunk is not None:
            self._trunk.backward(from_policy + from_values if self._values_train_trunk else from_policy, tape)


def policy_chain_of(network: ActorCritic) -> PolicyChain | None:
    """None if a part of it is of a kind that only autograd can do."""

    def chain(*modules: nn.Module | None) -> Chain | None:
        return chain_of(*(module for module in modules if module is not None))

    if type(network) is not ActorCritic or (network.log_std is not None and not network.log_std.requires_grad):
        return None
    is_dual = network.value_encoder is not None
    trunk = None if is_dual else chain(network.policy_encoder)
    policy = chain(network.policy_encoder if is_dual else None, network.policy_head)
    value = chain(network.value_encoder, network.value_head)
    if policy is None or value is None or not (is_dual or trunk):
        return None
    return PolicyChain(network, trunk, policy, value)
