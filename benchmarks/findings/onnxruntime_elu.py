"""ONNX Runtime, `Elu`, `Celu` and `Selu`: small negative numbers lose their digits

exp(x) − 1 is computed as it stands, which cancels near 0: −1e-8 becomes 0, and at −1e-4 the fourth digit is wrong.

**Documented**: alpha · (exp(x) − 1) for negative x, and no accuracy.

**Does it matter?** The error is a rounding of 1, small beside other activations. Between what was exported and what
runs there is a step at 0 that the model did not have.
"""

from __future__ import annotations

import mpmath
import torch
from onnx_model import run_operator
from proof import Proof, numbers, run

LIBRARY, VERSION = "onnxruntime", "1.32.0"
KIND, SEVERITY = "less accurate", "low"


def proof() -> Proof:
    x = torch.tensor([-1e-8, -1e-4, -1.0])
    exact = [mpmath.expm1(value) for value in numbers(x)]
    return Proof("Elu of [-1e-8, -1e-4, -1]", run_operator("Elu", x), exact, torch.expm1, (x,))


run(__name__, LIBRARY, VERSION, proof)
