"""Liger, `LigerFusedLinearCrossEntropyFunction`: each backward multiplies the gradient once more

The gradients are made by the forward and kept, and the backward multiplies them by its cotangent, in place. A second
backward through the same graph multiplies what the first one left: of half of the loss it gives a quarter, and then
an eighth.

**Documented**: a loss; torch.autograd.grad with retain_graph gives the same gradient each time.

**Does it matter?** Two losses that share the function, gradient norms for weighting of tasks, and `retain_graph` in
general get gradients that are too small, and nothing is said. With a cotangent of 1 nothing is seen.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "liger-kernel", "0.8.5"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((-torch.sigmoid(-x[0]) / 2.0, x[1] * 0.0))


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    x, weight, target = torch.ones(1, 2), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([0])
    leaf = x.clone().requires_grad_()
    loss = liger_fused_linear_cross_entropy(leaf, weight, target) * 0.5
    _, second = (torch.autograd.grad(loss, leaf, retain_graph=True)[0].clone() for _ in range(2))
    exact = [-1 / (1 + mpmath.exp(1)) / 2, mpmath.mpf(0)]
    return Proof("the second gradient of half of liger_fused_linear_cross_entropy", second, exact, spec, (x[0],))


run(__name__, LIBRARY, VERSION, proof)
