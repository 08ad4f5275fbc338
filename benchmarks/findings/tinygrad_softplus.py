"""tinygrad, `Tensor.softplus` and `Tensor.logsigmoid`: 0 from 17 on

logaddexp is written log(exp(a − m) + exp(b − m)) + m, without log1p: a small summand is lost beside 1. softplus(−20) is
0 where 2.06e-9 is right, and logsigmoid(20), which is its negative, too.

**Documented**: softplus by name alone; logsigmoid by a link to torch's page, whose function is right here.

**Does it matter?** For softplus as a positive parameter (a variance, a rate), yes: it is not positive, and its
logarithm is −∞. As a loss, hardly.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "tinygrad", "0.14.0"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    os.environ["DEV"] = "PYTHON"
    from tinygrad import Tensor

    x = torch.tensor([-20.0, -10.0, 1.0])
    computed = torch.from_numpy(Tensor(x.tolist()).softplus().numpy())
    exact = [mpmath.log1p(mpmath.exp(value)) for value in numbers(x)]
    return Proof("Tensor([-20.0, -10.0, 1.0]).softplus()", computed, exact, torch.nn.functional.softplus, (x,))


run(__name__, LIBRARY, VERSION, proof)
