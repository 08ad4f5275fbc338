"""`torch.optim.Adagrad` with `fused=True` on CPUs in float16: parameters without a gradient became NaN

In whole vectors the fused kernel rounded the learning rate, the weight decay and eps to the half type. The default eps,
1e-10, is 0 in float16, and a parameter whose gradients had all been 0 became 0 / 0. Elements behind the last whole
vector were right: of 33 parameters the first 32 were NaN. In bfloat16 the learning rate was off by up to 0.2 percent in
the same elements. 2.15.0 has them right.

**Documented**: p − lr·g / (√s + eps), with eps there to keep the divisor from 0.

**Does it matter?** Rows of an embedding that no batch has asked for have gradients of 0, and sparse features are what
Adagrad is known for. Few train in float16 on a CPU; without `fused` the same parameters are NaN, too, in all elements.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"
_RATE, _EPS = 0.5, 1e-10


def spec(p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return p - _RATE * g / (torch.sqrt(g * g) + _EPS)


def proof() -> Proof:
    p, g = torch.ones(33).half(), torch.zeros(33).half()
    parameter = torch.nn.Parameter(p.clone())
    parameter.grad = g.clone()
    torch.optim.Adagrad([parameter], lr=_RATE, eps=_EPS, fused=True).step()
    exact = [a - _RATE * b / (abs(b) + mpmath.mpf(_EPS)) for a, b in zip(numbers(p), numbers(g), strict=True)]
    call = "a step of torch.optim.Adagrad(lr=0.5, fused=True), 33 parameters of 1 with gradients of 0, float16"
    return Proof(call, parameter.detach(), exact, spec, (p, g))


run(__name__, LIBRARY, VERSION, proof)
