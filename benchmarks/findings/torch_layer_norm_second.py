"""`F.layer_norm`: the second derivative is wrong where the first one is taken by forward mode

The derivative of `torch.func.jvp` of layer norm, by either mode, drops terms: those by which the mean and the variance
of the input change. So do `jacfwd` of `jacfwd`, and a Laplacian by forward mode. The derivative of `torch.func.vjp` is
right by either mode. `F.batch_norm` in training loses the same terms.

**Documented**: torch.func.jvp composes with itself; nothing excepts normalisation.

**Does it matter?** Physics-informed networks and Laplacians of wave functions take second derivatives of a network,
and begin with forward mode where there are many outputs. The error is as large as the value.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"
EPS = 2.0**-16


def spec(x: torch.Tensor, t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """The derivative of (x − mean) / sqrt(variance + ε) along t and u, term by term."""
    x, t, u = x - x.mean(), t - t.mean(), u - u.mean()
    variance = (x * x).mean() + EPS
    along_t, along_u, along_both = (x * t).mean() / variance, (x * u).mean() / variance, (t * u).mean() / variance
    return (x * (3.0 * along_t * along_u - along_both) - t * along_u - u * along_t) / torch.sqrt(variance)


def _row(x: torch.Tensor, t: torch.Tensor, u: torch.Tensor, at: int) -> mpmath.mpf:
    """The same for one element by differences at 400 bits."""

    def moved(a: mpmath.mpf, b: mpmath.mpf) -> mpmath.mpf:
        row = [p + a * q + b * r for p, q, r in zip(numbers(x), numbers(t), numbers(u), strict=True)]
        mean = mpmath.fsum(row) / len(row)
        variance = mpmath.fsum((value - mean) ** 2 for value in row) / len(row)
        return (row[at] - mean) / mpmath.sqrt(variance + mpmath.mpf(EPS))

    return mpmath.diff(moved, (0, 0), (1, 1))


def proof() -> Proof:
    x, t, u = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 0.0, 0.5]), torch.tensor([0.0, 1.0, 0.25])

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (3,), eps=EPS)

    _, second = torch.func.jvp(lambda x: torch.func.jvp(norm, (x,), (t,))[1], (x,), (u,))
    return Proof(
        "torch.func.jvp(lambda x: torch.func.jvp(norm, (x,), (t,))[1], (x,), (u,))[1], norm = F.layer_norm",
        second, [_row(x, t, u, at) for at in range(3)], spec, (x, t, u),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
