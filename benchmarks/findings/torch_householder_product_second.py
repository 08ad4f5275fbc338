"""`linalg.householder_product`: the second derivative is wrong where the first one is taken by forward mode

The derivative of `torch.func.jvp` of a product of reflections, by either mode, is wrong: of −t³ it is −4.6 in place
of −3 at 0.5. That of `torch.func.grad` is right by either mode.

**Documented**: torch.func.jvp composes with itself; nothing excepts reflections.

**Does it matter?** Orthogonal layers are products of reflections, and second-order methods on them get another
curvature, without a word.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(t: torch.Tensor) -> torch.Tensor:
    """The second derivative of −t³."""
    return -6.0 * t


def of(t: torch.Tensor) -> torch.Tensor:
    vector = torch.stack((t * 0.0 + 1.0, t))
    return torch.linalg.householder_product(vector, t**2)[1]


def proof() -> Proof:
    t = torch.tensor([0.5], dtype=torch.float64)
    one = torch.ones_like(t)
    _, second = torch.func.jvp(lambda t: torch.func.jvp(of, (t,), (one,))[1], (t,), (one,))
    exact = mpmath.diff(lambda t: -(t**3), mpmath.mpf("0.5"), 2)
    return Proof(
        "the derivative of torch.func.jvp of linalg.householder_product([[1], [t]], [t²])[1], by forward mode",
        second,
        [exact],
        spec,
        (t,),
    )


run(__name__, LIBRARY, VERSION, proof)
