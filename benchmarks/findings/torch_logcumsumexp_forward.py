"""`torch.logcumsumexp`: forward mode is 0 in front of numbers that are sixty larger

The rule for forward mode takes exponentials of the numbers less the largest of the whole row, and adds 1e-13 to their
sums. In front of a number that is thirty larger the sums are no larger than that, so that derivatives that are 1
become 0. Reverse mode is right. float64 has it from thirty on, float32 as well.

**Documented**: the logarithm of the summed exponentials of the elements, one after the other.

**Does it matter?** It is used so that numbers of any size may stand in one row, as in scans of state space models and
in hidden Markov models; there directional derivatives of the prefixes are 0 without a word.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(x: torch.Tensor) -> torch.Tensor:
    """The derivative along the first element."""
    return torch.stack((x[0] * 0.0 + 1.0, torch.sigmoid(x[0] - x[1])))


def proof() -> Proof:
    x, first = torch.tensor([0.0, 60.0], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    _, slope = torch.func.jvp(lambda x: torch.logcumsumexp(x, 0), (x,), (first,))
    a, b = numbers(x)
    return Proof(
        "torch.func.jvp(lambda x: torch.logcumsumexp(x, 0), ([0, 60],), ([1, 0],))[1]",
        slope, [mpmath.mpf(1), 1 / (1 + mpmath.exp(b - a))], spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
