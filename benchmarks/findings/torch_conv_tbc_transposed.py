"""`F.conv_tbc`: the backward raises for a gradient that is transposed

The backward makes a matrix of time and batch of the gradient by `view`, which needs them to lie behind each other.
The layout of the operation is (time, batch, channels), and whoever puts the batch first again brings a transposed
gradient. `F.conv1d` takes any.

**Documented**: gradients of any strides, as for every operation of torch.

**Does it matter?** A model that uses the operation and transposes its result does not train, until somebody calls
`contiguous`.
"""

from __future__ import annotations

import torch
from proof import Proof, numbers, result_or_nan, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(factors: torch.Tensor) -> torch.Tensor:
    return factors.transpose(0, 1) * 2.0


def proof() -> Proof:
    x, weight, bias = torch.ones(2, 2, 1, requires_grad=True), torch.full((1, 1, 1), 2.0), torch.zeros(1)
    factors = torch.tensor([[[1.0], [3.0]], [[5.0], [7.0]]])
    loss = (torch.conv_tbc(x, weight, bias).transpose(0, 1) * factors).sum()
    return Proof(
        "the gradient of (F.conv_tbc(x, weight, bias).transpose(0, 1) * factors).sum(), which raises",
        result_or_nan(lambda: torch.autograd.grad(loss, x)[0], x),
        [2 * value for value in numbers(factors.transpose(0, 1))], spec, (factors,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
