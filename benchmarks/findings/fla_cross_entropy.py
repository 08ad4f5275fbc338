"""flash-linear-attention, `cross_entropy_loss`: roundings of the largest logit are in the loss and in its gradient

The loss is the logarithm of the sum of exponentials, with the largest logit added to it, less the target's logit. So
it has the roundings of the largest logit: with logits of 1000 and 990 the loss is 6.1e-5 where 4.5e-5 is right, and so
is the gradient, which the backward takes from the stored sum. With 40 and 24 the loss is 0. Torch takes the largest
logit from all others first.

**Documented**: a cross entropy, fused; nothing of its accuracy.

**Does it matter?** For a token that the model is sure of, and for logits that are large, as they are without a soft
cap or a z-loss: there the loss and the gradient have few digits, or none. Beside the losses of other tokens both are
small.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "fla-core", "0.6.0"
KIND, SEVERITY = "less accurate", "medium"


def spec(logits: torch.Tensor) -> torch.Tensor:
    return torch.log1p(torch.exp(logits[:, 1] - logits[:, 0]))


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"
    from fla.modules.fused_cross_entropy.ops import cross_entropy_loss

    logits = torch.tensor([[1000.0, 990.0], [40.0, 24.0], [1.0, 0.0]])
    computed = cross_entropy_loss(logits, torch.zeros(3, dtype=torch.long))[0]
    exact = [mpmath.log1p(mpmath.exp(other - target)) for target, other in map(numbers, logits)]
    call = "fla.modules.fused_cross_entropy.ops.cross_entropy_loss of [1000, 990], [40, 24], [1, 0] for class 0"
    return Proof(call, computed, exact, spec, (logits,))


run(__name__, LIBRARY, VERSION, proof)
