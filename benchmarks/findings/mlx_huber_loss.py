"""MLX, `huber_loss`: the gradient of a small residual is off by roundings of delta

The loss is 0.5 q² + δ (|e| − q) with q = min(|e|, δ). Reverse mode adds δ and −δ to the gradient, and what is left of
a small residual is what the sum of it and δ keeps: 1e-8 becomes 0, and 1.1e-7 becomes 1.2e-7. torch's has all digits;
Optax writes the loss, and has the gradient, as MLX.

**Documented**: 0.5 err² where |err| ≤ delta, so that the gradient is the residual.

**Does it matter?** Near convergence gradients are rounded to multiples of 6e-8 · δ, and with a δ of 1000 to multiples
of 6e-5.
"""

from __future__ import annotations

import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "mlx", "0.32.4"
KIND, SEVERITY = "less accurate", "low"


def spec(residual: torch.Tensor) -> torch.Tensor:
    return residual * 1.0


def proof() -> Proof:
    import mlx.core as mx
    from mlx.nn.losses import huber_loss

    residual = torch.tensor([1e-8, 1.1e-7, 0.25])
    slope = mx.grad(lambda e: huber_loss(e, mx.zeros(3)).sum())
    computed = torch.from_numpy(np.array(slope(mx.array(residual.numpy()))))
    call = "mlx.core.grad of the sum of mlx.nn.losses.huber_loss at [1e-8, 1.1e-7, 0.25]"
    return Proof(call, computed, numbers(residual), spec, (residual,))


run(__name__, LIBRARY, VERSION, proof)
