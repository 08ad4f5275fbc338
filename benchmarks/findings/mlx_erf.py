"""MLX, `mx.erf` on the CPU: 0 for numbers below 1e-7, and off by a fiftieth at 1e-5

The approximation 1 − p(t) exp(−x²) is good to some 1e-7 of 1, and not of the value. Near 0, where erf is 1.128 x, the
digits go: 2 % are wrong at 1e-5, and at 1e-7 it is 0. `nn.gelu` is made of it.

**Documented**: the error function.

**Does it matter?** Beside 1 the error is a rounding. As a probability of a small interval, or divided by x, it is
wrong.
"""

from __future__ import annotations

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "mlx", "0.32.4"
KIND, SEVERITY = "less accurate", "medium"


def proof() -> Proof:
    import mlx.core as mx

    x = torch.tensor([1e-7, 1e-5, 1e-3, 0.5])
    computed = torch.from_numpy(np.array(mx.erf(mx.array(x.numpy()), stream=mx.cpu)))
    exact = [mpmath.erf(value) for value in numbers(x)]
    return Proof("mlx.core.erf of [1e-7, 1e-5, 1e-3, 0.5]", computed, exact, torch.erf, (x,))


run(__name__, LIBRARY, VERSION, proof)
