"""Convolutions in bfloat16 on CPUs without instructions for it: gradients are summed in bfloat16

The gradient of the weight is added up image by image in bfloat16, and that of the input term by term: from 256 images
of equal gradients on, the sum stops growing. Of a depthwise kernel of 5 × 5 an element of the input's gradient that
cancels was off by over 6,900 halves of a unit in the last place. The gradient of the bias and the result are right.
The result of `F.conv_transpose2d` is such a gradient: where windows of 3 × 3 overlap, 285 of 576 elements are not the
nearest to their float64 values, of 1,600 without an overlap none; and its bias is added to what is stored already: of
32 channels by windows of 2 × 2 an element was off by 351 halves of a unit. `ONEDNN_MAX_CPU_ISA=AVX2` shows all of it
on a newer CPU.

**Documented**: nothing of the format of sums. On GPUs, and on CPUs with AVX-512 or AMX for bfloat16, they are taken in
float32.

**Does it matter?** In training in bfloat16 on such a CPU, which all with AVX2 alone are: the larger the batch, the
fewer right digits has the gradient of the weight.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "medium"
_IMAGES, _CHANNELS = 64, 4


def proof() -> Proof:
    draws = torch.Generator().manual_seed(0)
    x, g = (torch.randn((_IMAGES, _CHANNELS, 1, 1), generator=draws).bfloat16() for _ in range(2))
    weight = torch.zeros((_CHANNELS, _CHANNELS, 1, 1), dtype=torch.bfloat16, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.nn.functional.conv2d(x, weight), weight, g)
    x, g = x[:, :, 0, 0], g[:, :, 0, 0]
    exact = [_product(g[:, i], x[:, j]) for i in range(_CHANNELS) for j in range(_CHANNELS)]
    call = "the gradient of F.conv2d of (64, 4, 1, 1) in a weight of (4, 4, 1, 1), bfloat16"
    return Proof(call, slope[:, :, 0, 0], exact, lambda x, g: g.mT @ x, (x, g))


def _product(a: torch.Tensor, b: torch.Tensor) -> mpmath.mpf:
    return mpmath.fsum(x * y for x, y in zip(numbers(a), numbers(b), strict=True))


run(__name__, LIBRARY, VERSION, proof)
