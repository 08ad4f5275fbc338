"""`nn.CrossMapLRN2d`: the first channel is in every window, and the gradient is that of other windows

Forward keeps the sum of squares of the window of one channel and makes that of the next one from it. It takes out the
square of channel c − p only where c > p, and should where c >= p. So the square of channel 0 is never taken out, and
every later channel is divided by it, too. Backward takes windows of `size` channels that move with c. So the gradient
is not that of the values, and `nn.LocalResponseNorm`, which has the same formula, gives other values. The program
judges the gradient by what forward really computes.

**Documented**: nothing beside the signature, which is that of `nn.LocalResponseNorm`.

**Does it matter?** Yes, to those who load models of the time of AlexNet and GoogLeNet that were ported from Lua: values
and gradients are wrong in the first digit wherever alpha is not small. With the default alpha of 1e-4 few will see it.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"

CHANNELS, SIZE, ALPHA, BETA = 7, 5, 0.5, 0.75


def in_window(c: int, other: int) -> bool:
    """Whether forward's sum for channel c holds the square of another channel."""
    return other <= c + SIZE // 2 and (other == 0 or other >= c - SIZE // 2)


def spec(x: torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
    """The derivative of Σ g_c x_c s_c^−β, s = 1 + (α / size) W x², for the windows W of forward."""
    windows = torch.tensor([[float(in_window(c, other)) for other in range(CHANNELS)] for c in range(CHANNELS)])
    scale = 1.0 + ALPHA / SIZE * (windows.to(x.dtype) @ (x * x))
    share = cotangent * x * scale ** (-BETA - 1.0)
    return cotangent * scale**-BETA - 2.0 * ALPHA * BETA / SIZE * x * (windows.to(x.dtype).T @ share)


def proof() -> Proof:
    x = torch.tensor([1.5, -0.5, 0.25, 2.0, -1.0, 0.75, 0.5])
    cotangent = torch.tensor([1.0, -0.5, 2.0, 0.25, -1.5, 1.0, 0.5])
    leaf = x.reshape(1, CHANNELS, 1, 1).clone().requires_grad_()
    torch.nn.CrossMapLRN2d(SIZE, ALPHA, BETA)(leaf).backward(cotangent.reshape(1, CHANNELS, 1, 1))
    values, weights = numbers(x), numbers(cotangent)
    unit = mpmath.mpf(ALPHA) / SIZE
    scale = [
        1 + unit * mpmath.fsum(values[other] ** 2 for other in range(CHANNELS) if in_window(c, other))
        for c in range(CHANNELS)
    ]
    exact = [
        weights[j] * scale[j] ** -mpmath.mpf(BETA)
        - 2 * unit * BETA * values[j] * mpmath.fsum(
            weights[c] * values[c] * scale[c] ** (-mpmath.mpf(BETA) - 1) for c in range(CHANNELS) if in_window(c, j)
        )
        for j in range(CHANNELS)
    ]  # fmt: skip
    gradient = leaf.grad
    assert gradient is not None
    return Proof(
        f"the gradient of torch.nn.CrossMapLRN2d({SIZE}, {ALPHA}, {BETA})(x)", gradient.reshape(-1), exact, spec,
        (x, cotangent),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
