"""`F.linear_cross_entropy` in chunks: the derivative by forward mode is zero

Where the batch is divided into chunks, the loss is computed by an operation of its own, which has a backward and no
forward-mode formula. Its result has no tangent, and `torch.func.jvp` gives zeros in place of an error. In one piece,
which is the default for small batches, the derivative is right, and so is reverse mode in chunks.

**Documented**: a cross entropy whose logits are computed in chunks, to save memory; nothing on forward mode.

**Does it matter?** Directional derivatives and Jacobian-vector products of a language model's loss are 0 without a
word, as soon as the option that the function exists for is used.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(x: torch.Tensor, weight: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    shares = torch.softmax(x @ weight.T, -1) - torch.eye(2)
    return (shares * (direction @ weight.T)).sum().reshape(1) / 2


def proof() -> Proof:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    x, weight = torch.tensor([[1.0, 2.0], [-1.0, 0.5]]), torch.tensor([[0.5, 1.0], [2.0, -1.0]])
    direction, target = torch.tensor([[1.0, -1.0], [3.0, 2.0]]), torch.tensor([0, 1])
    options = LinearCrossEntropyOptions(batch_chunk_size=1)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear_cross_entropy(x, weight, target, options=options)

    _, slope = torch.func.jvp(loss, (x,), (direction,))
    return Proof(
        "torch.func.jvp(lambda x: F.linear_cross_entropy(x, weight, target, options=options), (x,), (direction,))[1]",
        slope.reshape(1), [_slope(x, weight, direction)], spec, (x, weight, direction),
    )  # fmt: skip


def _slope(x: torch.Tensor, weight: torch.Tensor, direction: torch.Tensor) -> mpmath.mpf:
    rows, moves, columns = ([numbers(row) for row in of] for of in (x, direction, weight))
    total = mpmath.mpf(0)
    for i, (row, move) in enumerate(zip(rows, moves, strict=True)):
        logits, slopes = ([mpmath.fdot(at, column) for column in columns] for at in (row, move))
        whole = sum(map(mpmath.exp, logits))
        total += sum(mpmath.exp(y) / whole * t for y, t in zip(logits, slopes, strict=True)) - slopes[i]
    return total / 2


run(__name__, LIBRARY, VERSION, proof)
