"""`F.multi_margin_loss` and `F.multilabel_margin_loss`: of a NaN the loss is 0

Each margin is added if it is larger than 0, which a NaN is not. So a NaN disappears, and where the logit of the
target is NaN, so that every margin is, the loss is 0, the best there is. The gradient is 0 as well.

**Documented**: the sum of max(0, margin − x[y] + x[i]) over the classes, and `torch.clamp` and `torch.relu`, by which
that can be written, hand a NaN on.

**Does it matter?** A training that has become NaN is told that it is perfect, and a watch on the loss never sees it.
"""

from __future__ import annotations

import mpmath
import torch
import torch.nn.functional as F
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return (torch.relu(1.0 - x[1] + x[::2]).sum() / 3.0).expand(2)


def proof() -> Proof:
    x = torch.tensor([0.5, torch.nan, 2.0], dtype=torch.float64)
    losses = F.multi_margin_loss(x, torch.tensor(1)), F.multilabel_margin_loss(x, torch.tensor([1, -1, -1]))
    return Proof(
        "multi_margin_loss([0.5, nan, 2], 1), multilabel_margin_loss([0.5, nan, 2], [1, -1, -1])",
        torch.stack(losses), [mpmath.nan] * 2, spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
