"""A nested state as JSON and named tensors, and back: what JSON and safetensors can say of it, and nothing else."""

import math
import struct
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from swell.errors import StorageError


def encode_tree(state: dict[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    """JSON for `state`, and the tensors that it refers to by name."""
    tensors: dict[str, Tensor] = {}
    return _encode(state, "", tensors), tensors


def _encode(node: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """JSON for `node`; what JSON lacks becomes an object with one key that begins with `$`."""
    if node is None or isinstance(node, bool | str):
        return node
    if isinstance(node, Tensor | np.ndarray | np.generic):
        return _encode_array(cast(Any, node), path, tensors)
    if isinstance(node, int):
        return node if node.bit_length() < 64 else {"$int": hex(node)}
    if isinstance(node, float):
        return node if math.isfinite(node) else {"$float": struct.pack(">d", node).hex()}
    if isinstance(node, list | tuple):
        return [_encode(child, f"{path}/{index}", tensors) for index, child in enumerate(cast("list[Any]", node))]
    if isinstance(node, dict):
        return _encode_dict(cast("dict[Any, Any]", node), path, tensors)
    raise StorageError(f"cannot save {path}: a checkpoint holds no {type(node).__name__}")


def _encode_dict(node: dict[Any, Any], path: str, tensors: dict[str, Tensor]) -> Any:
    if odd := [key for key in node if not isinstance(key, str | int) or isinstance(key, bool)]:
        raise StorageError(f"cannot save {path}: a key must be a str or an int, got {odd[0]!r}")
    pairs = [(key, _encode(child, f"{path}/{key}" if path else str(key), tensors)) for key, child in node.items()]
    if all(isinstance(key, str) and not key.startswith("$") for key in node):
        return dict(pairs)
    return {"$dict": [[_encode(key, path, tensors), child] for key, child in pairs]}


def _encode_array(node: Any, path: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    tag = "$tensor" if isinstance(node, Tensor) else "$array" if isinstance(node, np.ndarray) else "$scalar"
    name = path.encode("ascii", "backslashreplace").decode()
    while name in tensors or name == "__metadata__":
        name += "'"
    tensors[name] = _as_tensor(node, path)
    return {tag: name}


def _as_tensor(node: Any, path: str) -> Tensor:
    """A contiguous copy on the CPU that shares memory with nothing."""
    try:
        if not isinstance(node, Tensor):
            return torch.as_tensor(np.array(node, dtype=node.dtype.newbyteorder("="), order="C"))
        if node.layout != torch.strided or node.is_complex():
            raise TypeError(f"{node.layout}, {node.dtype}")
        return node.detach().cpu().clone(memory_format=torch.contiguous_format)
    except TypeError as error:
        raise StorageError(f"cannot save {path}: a checkpoint holds no such array: {error}") from error


def decode_tree(node: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `encode_tree`. Takes each tensor out once: a small file cannot ask for one a million times."""
    if isinstance(node, list):
        return [decode_tree(child, tensors) for child in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    tree = cast("dict[str, Any]", node)
    if len(tree) == 1 and (tag := next(iter(tree))).startswith("$"):
        return _decode_tagged(tag, tree[tag], tensors)
    return {key: decode_tree(child, tensors) for key, child in tree.items()}


def _decode_tagged(tag: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    match tag:
        case "$tensor":
            return tensors.pop(value).clone()
        case "$array":
            return tensors.pop(value).numpy().copy()
        case "$scalar":
            return tensors.pop(value).numpy()[()]
        case "$int":
            return int(value, 16)
        case "$float":
            return struct.unpack(">d", bytes.fromhex(value))[0]
        case "$dict":
            return {decode_tree(key, tensors): decode_tree(child, tensors) for key, child in value}
        case _:
            raise ValueError(f"unknown tag {tag}")
