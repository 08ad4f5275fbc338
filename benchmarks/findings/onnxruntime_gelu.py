"""ONNX Runtime, `Gelu`: the negative tail has no right digit

1 + erf(x/√2) cancels for negative x, and so does 1 + tanh in the approximate form: at −5 the result is 4 % off.
torch's `gelu` has the same.

**Documented**: x · Φ(x), and no accuracy.

**Does it matter?** The error is a rounding of 1, which activations of size 1 do not notice.
"""

from __future__ import annotations

import mpmath
import numpy as np
import torch
from onnx_model import run_operator
from proof import Proof, numbers, run

LIBRARY, VERSION = "onnxruntime", "1.32.0"
KIND, SEVERITY = "less accurate", "low"


def proof() -> Proof:
    from opassay.reference.array import erfc

    x = torch.tensor([-3.0, -5.0])
    exact = [value * mpmath.erfc(-value / mpmath.sqrt(2)) / 2 for value in numbers(x)]
    return Proof("Gelu of [-3, -5]", run_operator("Gelu", x), exact, lambda x: 0.5 * x * erfc(-x / np.sqrt(2.0)), (x,))


run(__name__, LIBRARY, VERSION, proof)
