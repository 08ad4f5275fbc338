"""`F.cross_entropy`: forward mode takes the derivative by class weights as zero

Reverse mode refuses clearly ("not differentiable with respect to argument 'weight'"). `torch.func.jvp` and `jacfwd` go
on with a tangent of zero, alone or beside tangents of the logits. `F.nll_loss` does the same.

**Documented**: weight is a manual rescaling weight given to each class. Nothing says that it may be differentiated, and
nothing says that its derivative is zero.

**Does it matter?** Where class weights are learnt or tuned, by forward mode because reverse mode refused, the result is
a gradient that lacks a part. Few will do so.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(logits: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    """The derivative of Σ −w_t·log softmax(x)_t for target 1, along a tangent of w."""
    return -tangent[1] * torch.log_softmax(logits, 1)[:, 1].sum()


def proof() -> Proof:
    logits, target = torch.tensor([[0.5, -1.0, 0.25]]), torch.tensor([1])
    weight, tangent = torch.tensor([0.5, 2.0, 1.5]), torch.tensor([1.0, 1.0, 1.0])

    def loss(weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, target, weight, reduction="sum")

    _, slope = torch.func.jvp(loss, (weight,), (tangent,))
    row = numbers(logits)
    exact = mpmath.log(mpmath.fsum(map(mpmath.exp, row))) - row[1]
    return Proof(
        "torch.func.jvp(lambda w: F.cross_entropy(logits, target, w, reduction='sum'), (weight,), (tangent,))[1]",
        slope, [exact], spec, (logits, tangent),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
