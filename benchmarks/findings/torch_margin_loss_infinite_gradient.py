"""`F.multi_margin_loss` and `F.multilabel_margin_loss`: an infinite gradient is NaN at classes that keep their margin

The backward makes the slope of each class first, which is 0 where the margin is kept, and multiplies all by the
gradient that comes in; 0 · ∞ is NaN. Written with `torch.relu` the same loss has 0 there.

**Documented**: the sum of max(0, margin − x[y] + x[i]), of which a class that keeps its margin is no part.

**Does it matter?** To few: a gradient overflows in half types with a large loss scale, and then every class of every
sample is NaN in place of those that are wrong.
"""

from __future__ import annotations

import mpmath
import torch
import torch.nn.functional as F
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    return x * 0.0


def proof() -> Proof:
    x = torch.tensor([1.0, 3.0, 2.5], dtype=torch.float64, requires_grad=True)
    infinite = torch.tensor(torch.inf, dtype=torch.float64)
    losses = F.multi_margin_loss(x, torch.tensor(1)), F.multilabel_margin_loss(x, torch.tensor([1, -1, -1]))
    slopes = [torch.autograd.grad(loss, x, infinite)[0][:1] for loss in losses]
    return Proof(
        "gradients of both losses of [1, 3, 2.5] and class 1 for an infinite one, at 1", torch.cat(slopes),
        [mpmath.mpf(0)] * 2, spec, (x.detach()[:1].expand(2),),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
