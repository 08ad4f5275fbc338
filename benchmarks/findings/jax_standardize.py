"""`jax.nn.standardize`: wrong in the first digit where the mean is a thousand times the spread

The variance is E[x²] − E[x]² by default (`algorithm="fast"`), and 0 where that is negative. At a mean of 1000 the
output is off by a tenth in float32, at 3000 it is 300 in place of 1.7. The stable algorithm beside it is off by 1e-4
there.

**Documented**: yes, and well: "can suffer from catastrophic cancellation"; the default is kept for compatibility.

**Does it matter?** Yes, for a default, which most callers have not chosen. At a mean of 100 it is 0.1 %.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from proof import Proof, around, normalisation, normalised, run

LIBRARY, VERSION = "jax", "0.10.2"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    x = around(1000.0)
    computed = torch.from_numpy(np.array(jax.nn.standardize(jax.numpy.array(x.numpy()))))
    call = "jax.nn.standardize of 8 float32 numbers around 1000"
    return Proof(call, computed, normalised(x, "1e-5"), normalisation(1e-5), (x,))


run(__name__, LIBRARY, VERSION, proof)
