"""`F.logsigmoid`: the second derivative is 0 from 17 on

It is computed as −s·(1 − s) with s = sigmoid(x), and 1 − s is 0 in float32 once s rounds to 1. At −x, where the value
is the same, it is right. The product s·(1 − s) of float32 loses digits from 5 on.

**Documented**: log(sigmoid(x)), without a limit; the function exists so that nothing is lost at large arguments.

**Does it matter?** Only where second derivatives of confident examples count, as in Fisher information and Newton's
method for logistic models: the weight of each is tiny, and here it is none.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return -torch.sigmoid(x) * torch.sigmoid(-x)


def proof() -> Proof:
    x, one = torch.tensor([10.0, 20.0, 30.0]), torch.ones(3)
    logsigmoid = torch.nn.functional.logsigmoid
    _, second = torch.func.jvp(lambda x: torch.func.jvp(logsigmoid, (x,), (one,))[1], (x,), (one,))
    exact = [-1 / (2 + mpmath.exp(value) + mpmath.exp(-value)) for value in numbers(x)]
    return Proof(
        "torch.func.jvp(lambda x: torch.func.jvp(F.logsigmoid, (x,), (one,))[1], (x,), (one,))[1], x = [10, 20, 30]",
        second, exact, spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
