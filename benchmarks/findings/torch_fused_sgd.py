"""`torch.optim.SGD` with `fused=True` on CPUs: parameters of half types were not updated

In bfloat16 and float16 the fused kernel stepped over all parameters that fill whole vectors, and updated those that are
left behind the last one: of 37 parameters the first 32 kept their values. With a momentum, the buffers of these
elements got numbers that have nothing to do with the gradient. 2.15.0 updates them all.

**Documented**: p − lr·g; `fused` is said to be another implementation of the same step.

**Does it matter?** A model in half types did not learn but for a few elements, without any error. `fused` has to be
asked for on CPUs.
"""

from __future__ import annotations

import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"
_RATE = 0.5


def spec(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return p - _RATE * g


def proof() -> Proof:
    draws = torch.Generator().manual_seed(0)
    p, g = (torch.randn(37, generator=draws).bfloat16() for _ in range(2))
    exact = [value - _RATE * slope for value, slope in zip(numbers(p), numbers(g), strict=True)]
    parameter = torch.nn.Parameter(p.clone())
    parameter.grad = g.clone()
    torch.optim.SGD([parameter], lr=_RATE, fused=True).step()
    call = "a step of torch.optim.SGD(lr=0.5, fused=True), 37 parameters, bfloat16"
    return Proof(call, parameter.detach(), exact, spec, (p, g))


run(__name__, LIBRARY, VERSION, proof)
