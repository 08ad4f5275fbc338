"""`torch.triangular_solve`: forward mode reads tangents in the triangle that is ignored

The operation reads one triangle of the matrix. Its rule for forward mode multiplies by the whole tangent of the
matrix, so that what stands in the other triangle changes the result. `torch.linalg.solve_triangular`, and reverse
mode, are right.

**Documented**: the other triangle is not accessed.

**Does it matter?** Whoever differentiates through a factor that is stored in a full matrix has another derivative by
forward than by reverse mode, and nothing says so. The function is deprecated.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The derivative of the solution where all elements of the matrix grow by one."""
    below = b[1] / a[1, 1]
    above = (b[0] - a[0, 1] * below) / a[0, 0]
    slope = -below / a[1, 1]
    return torch.stack((-(above + below + a[0, 1] * slope) / a[0, 0], slope))


def proof() -> Proof:
    a, b = torch.tensor([[2.0, 1.0], [0.0, 3.0]], dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    _, slope = torch.func.jvp(lambda a: torch.triangular_solve(b, a)[0], (a,), (torch.ones_like(a),))
    upper, ones = mpmath.matrix([[2, 1], [0, 3]]), mpmath.matrix([1, 1])
    exact = -mpmath.lu_solve(upper, mpmath.matrix([[1, 1], [0, 1]]) * mpmath.lu_solve(upper, ones))
    return Proof(
        "torch.func.jvp(lambda a: torch.triangular_solve(b, a)[0], (a,), (torch.ones_like(a),))[1], a upper triangular",
        slope.reshape(-1), list(exact), spec, (a, b.reshape(-1)),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
