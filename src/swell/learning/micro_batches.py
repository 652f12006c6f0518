"""How many samples go through the network at once, and fewer of them once memory has run out."""

import torch
from torch import Tensor

from swell.learning.optimize import AddGradient, accumulate_gradients

WORDS_FOR_IT = ("can't allocate memory", "not enough memory", "out of memory")
"""How torch says it: its CPU allocator on Linux and on Windows, GPUs."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS_FOR_IT)


class MicroBatches:
    """Gradients of minibatches of any size, in parts that memory has room for."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Most samples in a part. It is halved when memory runs out and stays so."""

    def accumulate(self, add_gradient: AddGradient, minibatch: Tensor, gradient: Tensor) -> float:
        """As `accumulate_gradients`. `gradient` is where it is added up: zero, and zero again before each new try."""
        while True:
            try:
                return accumulate_gradients(add_gradient, minibatch, self.size)
            except (MemoryError, RuntimeError) as error:
                used = min(self.size, minibatch.shape[0])
                if used == 1 or not is_out_of_memory(error):
                    raise
            # Not in the handler: there, the error still holds the tensors of the calls that failed.
            self.size = (used + 1) // 2
            gradient.zero_()
            if gradient.device.type == "cuda":
                torch.cuda.empty_cache()
