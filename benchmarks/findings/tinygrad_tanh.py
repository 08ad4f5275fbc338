"""tinygrad, `Tensor.tanh`: 0.1 % off at 1e-5, and 0 at 3e-8

2σ(2x) − 1 cancels for small x: 0.1 % is wrong at 1e-5, and 1e-8 becomes 0. `sinh`, `erf` and `atanh` lose small
arguments in the same way, each by a difference of numbers near 1.

**Documented**: the hyperbolic tangent, and no accuracy.

**Does it matter?** The error is a rounding of 1, so a layer of activations of size 1 does not notice. Where small
signals are kept apart by tanh (gates near 0, residual corrections, relative differences) they are gone.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "tinygrad", "0.14.0"
KIND, SEVERITY = "less accurate", "medium"


def proof() -> Proof:
    os.environ["DEV"] = "PYTHON"
    from tinygrad import Tensor

    x = torch.tensor([1e-8, 1e-5, 0.5])
    computed = torch.from_numpy(Tensor(x.tolist()).tanh().numpy())
    exact = [mpmath.tanh(value) for value in numbers(x)]
    return Proof("Tensor([1e-8, 1e-5, 0.5]).tanh()", computed, exact, torch.tanh, (x,))


run(__name__, LIBRARY, VERSION, proof)
