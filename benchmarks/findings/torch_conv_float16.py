"""float16 convolutions on CPUs: sums are taken in float16

A transposed convolution adds the contributions to one element one after another to what is stored in float16, and so
do the gradients of convolutions. A gradient of `F.conv1d` was off by 282 halves of a unit in the last place, where sums
in float32 that are rounded once are within one; elements that cancel lose more, and a partial sum may overflow.

**Documented**: nothing of the format of sums. On GPUs, and in bfloat16 on CPUs with instructions for
it, they are taken in float32.

**Does it matter?** In training in float16 on a CPU, which is rare; an error of some percent of small elements.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "low"
_CHANNELS, _WIDTH = 64, 3


def proof() -> Proof:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn((1, _CHANNELS, 4, 4), generator=draws).half()
    weight = torch.randn((_CHANNELS, 1, _WIDTH, _WIDTH), generator=draws).half()
    function = torch.nn.functional.conv_transpose2d
    size = 4 + _WIDTH - 1
    exact = [_exact(x, weight, i, j) for i in range(size) for j in range(size)]
    call = "F.conv_transpose2d of (1, 64, 4, 4) by (64, 1, 3, 3), float16"
    return Proof(call, function(x, weight), exact, function, (x, weight))


def _exact(x: torch.Tensor, weight: torch.Tensor, i: int, j: int) -> mpmath.mpf:
    """Σ x[c, k, l] w[c, i − k, j − l]."""
    terms = []
    for k in range(4):
        for n in range(4):
            if 0 <= i - k < _WIDTH and 0 <= j - n < _WIDTH:
                pairs = zip(numbers(x[0, :, k, n]), numbers(weight[:, 0, i - k, j - n]), strict=True)
                terms += [a * b for a, b in pairs]
    return mpmath.fsum(terms)


run(__name__, LIBRARY, VERSION, proof)
