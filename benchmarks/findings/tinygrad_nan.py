"""tinygrad: a NaN disappears in `relu`, `maximum` and `max`, and `relu6` of infinity is NaN

They are comparisons, which a NaN loses: `relu` makes 0 of it, the larger of 1 and NaN is 1, and so is the largest of
a row. `relu6` is a difference of two `relu`, so that infinity less infinity is NaN in place of 6.

**Documented**: as torch and NumPy, to whose results the tests of the library compare.

**Does it matter?** A training that has become NaN goes on as if nothing had happened, with a part of its numbers
replaced by 0.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "tinygrad", "0.14.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((torch.relu(x[0]), torch.nn.functional.relu6(x[1])))


def proof() -> Proof:
    os.environ["DEV"] = "PYTHON"
    from tinygrad import Tensor

    x = torch.tensor([torch.nan, torch.inf])
    computed = torch.tensor([Tensor([x[0].item()]).relu().item(), Tensor([x[1].item()]).relu6().item()])
    return Proof("Tensor([nan]).relu(), Tensor([inf]).relu6()", computed, [mpmath.nan, mpmath.mpf(6)], spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
