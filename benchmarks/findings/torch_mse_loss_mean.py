"""`F.mse_loss` of half types on CPUs: the gradient's factor 2/n is rounded to the half type

The gradient of the mean is 2/n·(x − y)·g. 2/n is rounded to the type of x before it is multiplied with g, the scale of
the loss. In float16 it is a subnormal from n = 32,769 on: of a million elements the gradient is off by 1.3
percent, and from 67 million on it is 0, whatever the scale of the loss. In bfloat16 it is off by up to 0.2 percent.
`F.huber_loss` does the same with 1/n.

**Documented**: the gradient of the mean of (x − y)²; nothing of its roundings. A scale of the loss is the documented
remedy for gradients that are too small for float16, and here it comes too late.

**Does it matter?** In training in half types without autocast, which computes losses in float32: all gradients get one
factor that is a little off.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "low"
_COUNT, _SCALE, _PART = 1_000_000, 1024.0, 4


def spec(x: torch.Tensor) -> torch.Tensor:
    return x * (2 * _SCALE / _COUNT)


def proof() -> Proof:
    x = torch.tensor([1.0, 3.0, 0.75, -5.0]).half().repeat(_COUNT // _PART).requires_grad_()
    loss = torch.nn.functional.mse_loss(x, torch.zeros_like(x))
    (slope,) = torch.autograd.grad(loss, x, torch.tensor(_SCALE).half())
    part = x.detach()[:_PART]
    exact = [value * 2 * mpmath.mpf(_SCALE) / _COUNT for value in numbers(part)]
    call = "1024 times the gradient of F.mse_loss of 1, 3, 0.75, -5 again and again, a million, and 0, float16"
    return Proof(call, slope[:_PART], exact, spec, (part,))


run(__name__, LIBRARY, VERSION, proof)
