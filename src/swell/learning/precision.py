"""Passes of image networks in half precision: what goes in and comes out is float32, as are weights and gradients."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from swell.config.learners import Precision
from swell.errors import ConfigError

Network = TypeVar("Network", bound=nn.Module)


class InBfloat16:
    """A network whose every method runs under autocast; its outputs are float32."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._device = next(network.parameters()).device.type

    def __call__(self, observations: Tensor) -> Any:
        return self._run(self._network, observations)

    def __getattr__(self, name: str) -> Callable[[Tensor], Any]:
        method = getattr(self._network, name)
        return lambda observations: self._run(method, observations)

    def _run(self, method: Callable[[Tensor], Any], observations: Tensor) -> Any:
        with torch.autocast(self._device, torch.bfloat16):
            outputs = method(observations)
        return outputs.float() if isinstance(outputs, Tensor) else tuple(output.float() for output in outputs)


def in_precision(precision: Precision, network: Network, shape: Sequence[int]) -> Network:
    """The network itself, or one that is called as it is; ConfigError where half precision would gain nothing."""
    if precision == "float32":
        return network
    if len(shape) != 3:
        raise ConfigError("precision bfloat16 is for images; this network takes vectors, try --precision float32")
    device = next(network.parameters()).device
    if not has_bfloat16(device):
        raise ConfigError(f"precision bfloat16 needs arithmetic that this {device.type} does not have; try float32")
    return InBfloat16(network)  # pyright: ignore[reportReturnType]


def has_bfloat16(device: torch.device) -> bool:
    """Whether it multiplies such numbers by itself, rather than by converting them."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
