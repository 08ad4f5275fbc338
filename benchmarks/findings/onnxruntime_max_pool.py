"""ONNX Runtime, `MaxPool`: a NaN disappears

The largest of a NaN and a number is the number here. ONNX Runtime's own `Max`, `ReduceMax`, `Clip` and `Relu` give NaN.

**Documented**: the largest value of each window; the ONNX specification says nothing of NaN. torch's pooling
and NumPy's maximum give NaN.

**Does it matter?** A model that has gone wrong upstream of a pooling layer looks healthy behind it, and gives other
numbers than the framework it was exported from.
"""

from __future__ import annotations

import mpmath
import torch
from onnx_model import run_operator
from proof import Proof, run

LIBRARY, VERSION = "onnxruntime", "1.32.0"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    x = torch.tensor([[[float("nan"), 1.0, 2.0, 3.0]]])
    return Proof(
        "MaxPool of [NaN, 1, 2, 3], windows of 2, stride 2",
        run_operator("MaxPool", x, kernel_shape=[2], strides=[2]), [mpmath.nan, mpmath.mpf(3)],
        lambda x: torch.maximum(x[..., 0::2], x[..., 1::2]), (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
