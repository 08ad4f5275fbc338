"""`F.rms_norm`: gradients lose a term on CPUs from 1e15 on

With r = 1/√(mean(x²) + ε) and y = r·x, the gradient for a cotangent g is r·(g − y·mean(g·y)). On CPUs it is made of
torch's operations one by one, and the derivative of `torch.rsqrt` is −½·g·r³, where the cube is taken alone. In float32
and bfloat16 it is 0 once r is below 9e-16, so that r·g is left: of a row of one element r·g in place of nearly 0. In
float64 that begins at 1e108. The output is right, and the exact gradient is far from the smallest number of the format.

On the other side the cube overflows once r is above 7e12, which takes a row below 1.4e-13 and an ε below 2e-26, and the
gradient is infinite.

`opassay run rms_norm fused_rms_norm --subject torch` fails for this in cells of derivatives of any mode and order: VJP,
JVP, ORD2, ORD3, NEST, LAYOUT, SPECIAL, DET, AUTOCAST, CALLS, NEEDS. The same operations with `1 / torch.sqrt` in place
of `torch.rsqrt` are verified in every one of these cells (profile commit).

**Documented**: y = x / √(mean(x²) + ε)·γ, without a limit on the size. torch's notes on numerical accuracy warn of
intermediate results of large inputs that overflow; here they underflow, or the inputs are small.

**Does it matter?** Numbers of 1e15 are rare, and the gradient keeps its scale: what goes wrong is that it no longer
vanishes along the row. Models that write RMS norm with `torch.rsqrt` themselves have the same gradients.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"
EPS = 2.0**-16


def spec(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """The gradient, in an order in which nothing underflows."""
    r = 1.0 / torch.sqrt((x * x).mean() + EPS)
    y = x * r
    return r * (grad - y * (grad * y).mean())


def exact(x: torch.Tensor, grad: torch.Tensor) -> list[mpmath.mpf]:
    """The same as r·g − r³·x·mean(g·x), by mpmath, which has no limit on exponents."""
    row, g = numbers(x), numbers(grad)
    r = 1 / mpmath.sqrt(mpmath.fdot(row, row) / len(row) + mpmath.mpf(EPS))
    along = mpmath.fdot(g, row) / len(row)
    return [r * a - r**3 * b * along for a, b in zip(g, row, strict=True)]


def proof() -> Proof:
    x, grad = torch.tensor([1e15, 2e15, -1e15], requires_grad=True), torch.tensor([1.0, 0.0, 0.5])
    (computed,) = torch.autograd.grad(torch.nn.functional.rms_norm(x, (3,), eps=EPS), x, grad)
    x = x.detach()
    return Proof(
        "the gradient of F.rms_norm(torch.tensor([1e15, 2e15, -1e15]), (3,), eps=2**-16) for [1, 0, 0.5]",
        computed, exact(x, grad), spec, (x, grad),
        own=(
            "F.rms_norm",
            lambda x, grad: torch.func.vjp(lambda x: torch.nn.functional.rms_norm(x, (3,), eps=EPS), x)[1](grad)[0],
        ),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
