"""Paddle on the CPU, `group_norm`: a tenth off at a mean of 1000, and 180 times too large at 4000

The variance is the mean of squares less the square of the mean, in float32, and set to 0 where it comes out negative.
Numbers around 4000 with a spread of 0.6 are normalised to 91 in place of 0.5. `layer_norm` and `instance_norm` are
right.

**Documented**: (x − E(x)) / sqrt(Var(x) + ε).

**Does it matter?** Wherever features have a mean that is large beside their spread: images in raw units, and
activations behind a bias or a residual path.
"""

from __future__ import annotations

import torch
from proof import Proof, around, normalisation, normalised, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "wrong result", "high"


def proof() -> Proof:
    import paddle

    x = around(4000.0)
    result = paddle.nn.functional.group_norm(paddle.to_tensor(x.reshape(1, 1, 8).tolist(), place="cpu"), 1)
    call = "paddle.nn.functional.group_norm of eight numbers around 4000"
    computed = torch.tensor(result.reshape([8]).tolist())
    return Proof(call, computed, normalised(x, "1e-5"), normalisation(1e-5), (x,))


run(__name__, LIBRARY, VERSION, proof)
