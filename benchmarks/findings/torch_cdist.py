"""`torch.cdist`: near points are at distance 0 once there are 26 of them

With more than 25 points, |a − b|² is computed as |a|² − 2ab + |b|², by a product of matrices. Two points whose
coordinates are 1000 and that are 0.01 apart are found at distance 0; with 25 points or fewer the same call is right.

**Documented**: that a product of matrices is used beyond 25 points, and how to choose otherwise (`compute_mode`), but
not that digits are lost by it.

**Does it matter?** In clustering, nearest neighbours and kernels of distances, where near points are what is asked for:
0 and 0.01 are different answers. Relative to the coordinates the error is 1e-5.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    difference = first[:, None, :] - second[None, :, :]
    return torch.sqrt((difference * difference).sum(-1))


def proof() -> Proof:
    many = torch.tensor([[1000.0, 1000.0]]).repeat(26, 1)
    other = torch.tensor([[1000.0, 1000.01]])
    distance = abs(numbers(other)[1] - 1000)
    return Proof(
        "torch.cdist(torch.tensor([[1000.0, 1000.0]]).repeat(26, 1), torch.tensor([[1000.0, 1000.01]]))",
        torch.cdist(many, other), [mpmath.mpf(distance)] * 26, spec, (many, other),
        own=("torch.cdist", lambda a, b: torch.cdist(a, b)),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
