"""`jax.scipy.special.rel_entr` and `kl_div`: near distributions lose their digits

p log p − p log q is computed in place of p log(p/q), which cancels where the two are near each other: 2 % off at 1000
and 1000.01. SciPy takes the logarithm of the quotient, and so does JAX 0.12.

**Documented**: rel_entr(p, q) = p log(p/q), as the documentation writes it.

**Does it matter?** A Kullback-Leibler divergence is a sum of such terms, and a model that is good has p near q
everywhere.
"""

from __future__ import annotations

import os

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "jax", "0.10.2"
KIND, SEVERITY = "less accurate", "medium"


def spec(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return p * torch.log1p((p - q) / q)


def proof() -> Proof:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    p, q = torch.tensor([100.0, 1000.0]), torch.tensor([100.01, 1000.01])
    computed = torch.from_numpy(np.array(jax.scipy.special.rel_entr(p.numpy(), q.numpy())))
    exact = [a * mpmath.log(a / b) for a, b in zip(numbers(p), numbers(q), strict=True)]
    return Proof("jax.scipy.special.rel_entr([100, 1000], [100.01, 1000.01])", computed, exact, spec, (p, q))


run(__name__, LIBRARY, VERSION, proof)
