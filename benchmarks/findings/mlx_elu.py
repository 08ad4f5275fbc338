"""MLX, `nn.elu`, `nn.celu` and `nn.selu`: small negative numbers lose their digits

exp(x) − 1 is computed as it stands: of −1e-8 comes 0, and at −1e-4 the fourth digit is wrong. `mx.expm1` is there, and
right.

**Documented**: α (exp(x) − 1) for negative numbers. SELU's constants are documented with six digits, which is 3e-6.

**Does it matter?** Beside activations of size 1 the error is a rounding. The ratio of output to input, which is 1 near
0, is not.
"""

from __future__ import annotations

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "mlx", "0.32.4"
KIND, SEVERITY = "less accurate", "low"


def proof() -> Proof:
    import mlx.core as mx
    from mlx import nn

    x = torch.tensor([-1e-8, -1e-4, -0.01, 1.0])
    computed = torch.from_numpy(np.array(nn.elu(mx.array(x.numpy()))))
    exact = [mpmath.expm1(value) if value < 0 else value for value in numbers(x)]
    return Proof("mlx.nn.elu of [-1e-8, -1e-4, -0.01, 1]", computed, exact, torch.nn.functional.elu, (x,))


run(__name__, LIBRARY, VERSION, proof)
