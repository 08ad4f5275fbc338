"""`jax.nn.log_sigmoid`: the gradient's error grows with x

log σ(x) is −logaddexp(−x, 0), and its gradient, σ(−x), comes out as an exponential of a difference of size x that was
rounded: the error grows as x does, to 14 units of roundoff at 32 in float64.

**Documented**: log σ(x), and no accuracy of its gradient.

**Does it matter?** Hardly: it is the 15th digit. It is here because it shows how small an error the bound sees: torch's
gradient of the same function lies within it.
"""

from __future__ import annotations

import os

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "jax", "0.10.2"
KIND, SEVERITY = "less accurate", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    """σ(−x), as torch's own rule has it."""
    small = torch.exp(-x)
    return small / (1 + small)


def proof() -> Proof:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_enable_x64", True)
    x = torch.tensor([1.0, 32.0], dtype=torch.float64)
    gradient = jax.vmap(jax.grad(jax.nn.log_sigmoid))(jax.numpy.array(x.numpy()))
    exact = [1 / (1 + mpmath.exp(value)) for value in numbers(x)]
    call = "jax.grad(jax.nn.log_sigmoid) at 1 and 32, float64"
    return Proof(call, torch.from_numpy(np.array(gradient)), exact, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
