"""tinygrad, `Tensor.asinh`: −∞ from −4200 on

log(x + √(x² + 1)) cancels for negative x: at −300 three digits are right, and from about −4200 on the argument of the
logarithm is 0. Beyond 1.8e19 the square overflows, on both sides, and so it does in `acosh`.

**Documented**: the inverse hyperbolic sine, and no accuracy.

**Does it matter?** Yes: −∞ for an answer of −9.9.
"""

from __future__ import annotations

import os

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "tinygrad", "0.14.0"
KIND, SEVERITY = "wrong result", "high"


def proof() -> Proof:
    os.environ["DEV"] = "PYTHON"
    from tinygrad import Tensor

    x = torch.tensor([-300.0, -1e4, 3.0])
    computed = torch.from_numpy(Tensor(x.tolist()).asinh().numpy())
    exact = [mpmath.asinh(value) for value in numbers(x)]
    return Proof("Tensor([-300.0, -1e4, 3.0]).asinh()", computed, exact, lambda x: np.arcsinh(x), (x,))


run(__name__, LIBRARY, VERSION, proof)
