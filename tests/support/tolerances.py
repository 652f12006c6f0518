"""How far two ways of adding the same terms may be apart, where they cannot be compared in float64."""

import torch
from torch import Tensor


def rounding_of(*terms: Tensor | float, roundings: int = 1, dtype: torch.dtype = torch.float32) -> float:
    """The most by which two sums of the same terms differ: ε (n − 1 + roundings) Σ|term|.

    Adding n terms in any order errs by at most ε/2 (n − 1) Σ|term| (Higham, Accuracy and Stability of Numerical
    Algorithms, section 4.2), and each term by ε/2 |term| for each of the `roundings` that made it. Two sums that err so
    are at most twice as far apart.
    """
    sizes = torch.cat([torch.as_tensor(term, dtype=torch.float64).detach().flatten().abs() for term in terms])
    return torch.finfo(dtype).eps * (sizes.numel() - 1 + roundings) * sizes.sum().item()
