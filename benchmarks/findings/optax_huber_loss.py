"""`optax.losses.huber_loss`: the gradient of a small residual is off by roundings of delta

The loss is written as quadratic(min(|e|, δ)) + δ (|e| − min(|e|, δ)). Reverse mode adds δ and −δ to the gradient, and
what is left of a small residual is what the sum of it and δ keeps: 1e-8 becomes 0, and 1.1e-7 becomes 1.2e-7. torch's
has all digits.

**Documented**: 0.5 err² where |err| ≤ delta, so that the gradient is the residual.

**Does it matter?** Near convergence gradients are rounded to multiples of 6e-8 · δ, and with a δ of 1000 to multiples
of 6e-5.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "optax", "0.2.8"
KIND, SEVERITY = "less accurate", "low"


def spec(residual: torch.Tensor) -> torch.Tensor:
    return residual * 1.0


def proof() -> Proof:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import optax

    residual = torch.tensor([1e-8, 1.1e-7, 0.25])
    slope = jax.grad(lambda e: optax.losses.huber_loss(e, jax.numpy.zeros(3)).sum())
    computed = torch.from_numpy(np.array(slope(residual.numpy())))
    return Proof(
        "jax.grad of the sum of optax.losses.huber_loss at [1e-8, 1.1e-7, 0.25]",
        computed,
        numbers(residual),
        spec,
        (residual,),
    )


run(__name__, LIBRARY, VERSION, proof)
