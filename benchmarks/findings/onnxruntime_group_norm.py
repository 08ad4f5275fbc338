"""ONNX Runtime, `GroupNormalization`: wrong in the first digit where the mean is a thousand times the spread

The operator is run by the function body of its ONNX schema, which takes the variance as E[x²] − E[x]². Nearly all
digits of float32 cancel at a mean of 1000 and a spread of 1. At 3000 the output is 300 in place of 1.7, at 4000 NaN.

**Documented**: y = scale·(x − mean)/√(variance + ε) + bias, computed in float32 (`stash_type` = 1). ONNX Runtime's own
`LayerNormalization` and `InstanceNormalization` of the same numbers are right.

**Does it matter?** Yes: the first digit of the output is wrong, in a range that images without normalisation have.
"""

from __future__ import annotations

import torch
from onnx_model import run_operator
from proof import Proof, around, normalisation, normalised, run

LIBRARY, VERSION = "onnxruntime", "1.32.0"
KIND, SEVERITY = "wrong result", "high"


def proof() -> Proof:
    x = around(1000.0)
    operands = (x.reshape(1, 2, 4), torch.ones(2), torch.zeros(2))
    return Proof(
        "GroupNormalization of 8 numbers around 1000, one group, epsilon 1e-5",
        run_operator("GroupNormalization", *operands, num_groups=1).reshape(-1),
        normalised(x, "1e-5"), normalisation(1e-5), (x,),
        own=("F.group_norm", lambda x: torch.nn.functional.group_norm(x.reshape(1, 2, 4), 1).reshape(-1)),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
