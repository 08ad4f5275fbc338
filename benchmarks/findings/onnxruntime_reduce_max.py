"""ONNX Runtime, `ReduceMax` and `ReduceMin`: a NaN disappears where it is not the first

A NaN at the beginning of a row is kept, and anywhere else it is lost, as it loses every comparison. So the result
depends on the order of the numbers. `Max` of two tensors keeps it.

**Documented**: the largest element; the standard says that the behaviour is similar to NumPy's, which keeps NaN.

**Does it matter?** A model whose activations have become NaN goes on with numbers, and whether it does depends on the
place of the NaN.
"""

from __future__ import annotations

import mpmath
import torch
from onnx_model import run_operator
from proof import Proof, run

LIBRARY, VERSION = "onnxruntime", "1.32.0"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    x = torch.tensor([[1.0, torch.nan, 2.0], [torch.nan, 1.0, 2.0]])
    computed = run_operator("ReduceMax", x, opset=13, axes=[1], keepdims=0)
    call = "ReduceMax along the rows of [[1, nan, 2], [nan, 1, 2]]"
    return Proof(call, computed, [mpmath.nan] * 2, lambda x: torch.amax(x, 1), (x,))


run(__name__, LIBRARY, VERSION, proof)
