"""Liger, `liger_relu_squared`: a NaN becomes 0 on a GPU

`tl.maximum(x, 0)` becomes the instruction `max.f32`, which gives the other operand where one is NaN (PTX ISA). So a
NaN becomes 0, and its gradient as well. torch's `relu` keeps it, and so does Triton's interpreter, in which tests
without a GPU run. Here the PTX was executed.

**Documented**: relu(x)²; the reference in the tests of the library is torch's relu.

**Does it matter?** A training that has become NaN is not noticed any more, by loss scaling and checks of gradients
either, and goes on with a part of the network switched off.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "liger-kernel", "0.8.5"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) ** 2


def proof() -> Proof:
    from opassay.properties.places.executing import execute_launches

    x = torch.tensor([[torch.nan, -1.0, 2.0]])
    with execute_launches("sm_80"):
        from liger_kernel.transformers.functional import liger_relu_squared

        computed = liger_relu_squared(x)
    exact = [mpmath.nan, mpmath.mpf(0), mpmath.mpf(4)]
    return Proof("liger_relu_squared([[nan, -1, 2]]), compiled for sm_80", computed, exact, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
