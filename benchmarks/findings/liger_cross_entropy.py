"""Liger, `LigerCrossEntropyFunction`: the gradient of transposed logits is the logits

Where the last axis of the logits is not contiguous, forward copies them. Autograd is off in there, so the copy does not
require a gradient, `HAS_GRADIENTS=_input.requires_grad` is false, the kernel writes no gradient over the logits, and
backward returns what stands there: the logits. The loss is right, and nothing is said.

**Documented**: logits of shape (BT, V); nothing on strides, and the copy is there to take any.

**Does it matter?** Yes: training on wrong gradients. Logits are contiguous in most models; a channel-first head, or a
vocabulary axis that was moved to the end by `transpose`, makes them not so.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "liger-kernel", "0.8.5"
KIND, SEVERITY = "wrong result", "high"
TARGET = torch.tensor([0, 2, 1])
ONE_HOT = torch.eye(4)[TARGET]


def spec(logits: torch.Tensor) -> torch.Tensor:
    """The gradient of the mean cross entropy: (softmax − one-hot) / rows."""
    powers = torch.exp(logits - logits.amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True) - ONE_HOT) / logits.shape[0]


def exact(logits: torch.Tensor) -> list[mpmath.mpf]:
    """The same, by mpmath."""
    values: list[mpmath.mpf] = []
    for row, target in zip(logits, TARGET.tolist(), strict=True):
        powers = [mpmath.exp(value) for value in numbers(row)]
        shares = [power / mpmath.fsum(powers) for power in powers]
        values += [(share - (column == target)) / len(logits) for column, share in enumerate(shares)]
    return values


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton's own interpreter; no GPU is needed
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    rows = torch.tensor([[1.5, 0.5, -0.25, 2.0], [-0.5, 1.0, 0.75, 0.0], [0.25, -1.0, 1.25, 0.5]])
    logits = rows.t().contiguous().t().requires_grad_()  # the same numbers, with strides (1, 3)
    LigerCrossEntropyFunction.apply(logits, TARGET, None)[0].backward()
    assert logits.grad is not None
    call = "the gradient of LigerCrossEntropyFunction.apply(logits, target, None)[0], logits of strides (1, 3)"
    return Proof(call, logits.grad, exact(rows), spec, (rows,))


run(__name__, LIBRARY, VERSION, proof)
