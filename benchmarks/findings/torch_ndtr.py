"""`torch.special.ndtr`: the lower tail is zero

The distribution function of the normal law is computed as (1 + erf(x/√2))/2, which cancels for negative x: at −4 the
fourth digit is wrong, and from −5.6 on (float32; −8.4 in float64) the result is 0.

**Documented**: "the area under the standard Gaussian probability density function, integrated from minus infinity", and
no accuracy. `torch.special.log_ndtr` is right in the same range, and so is erfc(−x/√2)/2 by torch's own `erfc`.

**Does it matter?** Beside 1 the error is a rounding. A tail probability is asked for because it is small: its
logarithm is −∞ here, and a quotient of two of them is NaN.
"""

from __future__ import annotations

import mpmath
import numpy as np
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    from opassay.reference.array import erfc

    x = torch.tensor([-4.0, -6.0, -8.0])
    exact = [mpmath.ncdf(value) for value in numbers(x)]
    return Proof(
        "torch.special.ndtr(torch.tensor([-4.0, -6.0, -8.0]))",
        torch.special.ndtr(x), exact, lambda x: 0.5 * erfc(-x / np.sqrt(2.0)), (x,),
        own=("torch.special.ndtr", torch.special.ndtr),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
