"""ONNX Runtime, `Sigmoid`: 0 below −18, and off by a factor before

The float32 sigmoid is an approximation that is good to some 1e-8 of 1, and not of the value. It is off by a factor of
two at −17, it is not monotonic between −18 and −7.8, the first zeros come at −16, and below −18 all is 0. There the
value is 1.5e-8; float32 could say it down to −103.

**Documented**: y = 1/(1 + exp(−x)), and no accuracy.

**Does it matter?** As a gate, no. As a probability, yes: a loss log y is −∞, a threshold below 1e-7 never fires, and
the result differs from that of the framework that the model was trained in.
"""

from __future__ import annotations

import mpmath
import torch
from onnx_model import run_operator
from proof import Proof, numbers, run

LIBRARY, VERSION = "onnxruntime", "1.32.0"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    x = torch.tensor([-20.0, -17.0, -15.0, -5.0])
    exact = [1 / (1 + mpmath.exp(-value)) for value in numbers(x)]
    return Proof("Sigmoid of [-20, -17, -15, -5]", run_operator("Sigmoid", x), exact, torch.sigmoid, (x,))


run(__name__, LIBRARY, VERSION, proof)
