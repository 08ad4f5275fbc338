"""`linalg.det` and `linalg.slogdet`: the second derivative is wrong where the first one is taken by forward mode

The derivative of `torch.func.jvp` of a determinant, by either mode, lacks a term. That of `torch.func.grad` is right
by either mode. 2.15.0 is right.

**Documented**: torch.func.jvp composes with itself; nothing excepts determinants.

**Does it matter?** Curvature of likelihoods and of physical models is taken by forward over forward or reverse over
forward mode where there are many outputs, and is wrong in the first digit without a word.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(t: torch.Tensor) -> torch.Tensor:
    """The second derivative of (2 + t)(3 − t) − t²."""
    return t * 0.0 - 4.0


def of(t: torch.Tensor) -> torch.Tensor:
    zero = t[0] * 0.0
    rows = torch.stack((torch.stack((2.0 + t[0], t[0] ** 2)), torch.stack((zero + 1.0, 3.0 - t[0]))))
    return torch.linalg.det(rows).reshape(1)


def proof() -> Proof:
    t = torch.tensor([0.5], dtype=torch.float64)
    one = torch.ones_like(t)
    _, second = torch.func.jvp(lambda t: torch.func.jvp(of, (t,), (one,))[1], (t,), (one,))
    exact = mpmath.diff(lambda t: (2 + t) * (3 - t) - t**2, mpmath.mpf("0.5"), 2)
    return Proof(
        "the derivative of torch.func.jvp of linalg.det([[2 + t, t²], [1, 3 − t]]), by forward mode",
        second,
        [exact],
        spec,
        (t,),
    )


run(__name__, LIBRARY, VERSION, proof)
