"""`jax.numpy.exp2`: the error grows with the exponent

2^x is computed as exp(x·log 2) with a product that is rounded, so the relative error is up to 0.7·|x| units of roundoff
and more: 43 of them at −100.3 in float32, and powers of two are not exact.

**Documented**: 2^x, and no accuracy. torch's is off by about one unit.

**Does it matter?** 2.6e-6 of the value, at every size of it: for a softmax in base 2 no, for scales that must be powers
of two yes.
"""

from __future__ import annotations

import os

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "jax", "0.10.2"
KIND, SEVERITY = "less accurate", "low"


def proof() -> Proof:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    x = torch.tensor([-100.3, 23.0, 100.7])
    computed = torch.from_numpy(np.array(jax.numpy.exp2(jax.numpy.array(x.numpy()))))
    exact = [mpmath.power(2, value) for value in numbers(x)]
    return Proof("jax.numpy.exp2 of [-100.3, 23, 100.7], float32", computed, exact, lambda x: np.exp2(x), (x,))


run(__name__, LIBRARY, VERSION, proof)
