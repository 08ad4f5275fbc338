"""`torch.sgn`: a second `backward` into the same leaf raises

The gradient of `sgn` is a tensor of zeros that has no memory and may not be written. The first `backward` leaves it
in `.grad`, and the second adds to it in place, which raises. `torch.sign` leaves zeros that can be written.

**Documented**: gradients are accumulated into `.grad`.

**Does it matter?** Gradient accumulation over two batches ends with an error that does not name the operation;
optimizers that write to gradients, as clipping does, meet the same.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, result_or_nan, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return x * 0.0


def proof() -> Proof:
    x = torch.ones(2, requires_grad=True)

    def accumulate() -> torch.Tensor:
        for _ in range(2):
            torch.sgn(x).sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        return x.grad.clone()

    return Proof(
        "torch.sgn(x).sum().backward(), twice, and then x.grad, which the second one does not reach",
        result_or_nan(accumulate, x), [mpmath.mpf(0)] * 2, spec, (x.detach(),),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
