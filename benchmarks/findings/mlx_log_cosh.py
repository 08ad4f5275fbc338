"""MLX, `log_cosh_loss`: 0 for errors below 2e-4, and steps of 1.2e-7 above

The loss is logaddexp(e, −e) − log 2, so that the half square of a small error is what is left of two numbers around
0.69: 0 at 1e-4, where 5e-9 is right, and 5 % off at 1e-3.

**Documented**: log(cosh(e)), which "acts like L2 loss for small errors".

**Does it matter?** The gradient is right. The loss that is logged stops at 0, or jumps, once a model is good.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "mlx", "0.32.4"
KIND, SEVERITY = "less accurate", "low"


def spec(errors: torch.Tensor) -> torch.Tensor:
    near, size = errors.clamp(-1, 1), errors.abs()
    far = size + torch.log1p(torch.exp(-2 * size)) - math.log(2)
    return torch.where(size < 1, 0.5 * torch.log1p(torch.sinh(near) ** 2), far)


def proof() -> Proof:
    import mlx.core as mx
    from mlx.nn.losses import log_cosh_loss

    errors = torch.tensor([1e-4, 1e-3, 1e-2, 3.0])
    computed = torch.from_numpy(np.array(log_cosh_loss(mx.array(errors.numpy()), mx.zeros(4))))
    exact = [mpmath.log(mpmath.cosh(value)) for value in numbers(errors)]
    return Proof("mlx.nn.losses.log_cosh_loss of [1e-4, 1e-3, 1e-2, 3] for 0", computed, exact, spec, (errors,))


run(__name__, LIBRARY, VERSION, proof)
