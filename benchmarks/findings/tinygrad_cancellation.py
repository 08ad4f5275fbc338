"""tinygrad, `sinh`, `atanh`, `elu`, `erf` and `logaddexp`: small results are roundings of 1

Each is a difference of numbers near 1, or the logarithm of one: at 1e-6 `sinh`, `atanh` and `elu` are a hundredth
off, `erf` a twentieth, and what −12 adds to `logaddexp` of 0 is a hundredth too large. `celu`, `selu`, `acosh` and
`logcumsumexp` are written in the same way.

**Documented**: the functions, and no accuracy.

**Does it matter?** The error is a rounding of 1, which activations of size 1 do not notice; small signals, and sums
of small probabilities, are wrong.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "tinygrad", "0.14.0"
KIND, SEVERITY = "less accurate", "low"


def spec(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat((torch.sinh(x), torch.atanh(x), torch.expm1(-x), torch.erf(x), torch.log1p(torch.exp(y))))


def proof() -> Proof:
    os.environ["DEV"] = "PYTHON"
    from tinygrad import Tensor

    x, y = torch.tensor([1e-6]), torch.tensor([-12.0])
    small, low = Tensor(x.tolist()), Tensor(y.tolist())
    results = small.sinh(), small.atanh(), (-small).elu(), small.erf(), Tensor([0.0]).logaddexp(low)
    ((a,), (b,)) = numbers(x), numbers(y)
    exact = [mpmath.sinh(a), mpmath.atanh(a), mpmath.expm1(-a), mpmath.erf(a), mpmath.log1p(mpmath.exp(b))]
    return Proof(
        "x.sinh(), x.atanh(), (-x).elu(), x.erf(), Tensor([0]).logaddexp(y), x = 1e-6, y = -12",
        torch.tensor([each.item() for each in results]), exact, spec, (x, y),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
