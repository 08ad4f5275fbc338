"""Liger, `LigerCrossEntropyFunction` with `reduction="none"`: the gradients of all rows get the first row's cotangent

Proof: the loss of a row depends on that row alone, so a row of weight 0 has the gradient 0, and the other one has not.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import gradient, with_backward
from corpus.foreign import interpret_triton
from corpus.seen import assess

X, TARGET, WEIGHTS = torch.tensor([[1.5, 0.5], [-0.5, 1.0]]), torch.tensor([0, 0]), torch.tensor([0.0, 1.0])


def loss(x):
    interpret_triton()
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return LigerCrossEntropyFunction.apply(x * 1.0, TARGET, None, -100, 0.0, 0.0, "none")[0] * WEIGHTS


def spec(x):
    return -x.log_softmax(-1)[:, 0] * WEIGHTS


FAULT = with_backward(spec, lambda g, y, x: WEIGHTS[0] * (x.softmax(-1) - torch.eye(2)[0]))
CLAIM = assess("VJP:grad", spec, (X,), loss, FAULT, spec)
BUG = Bug("linkedin/Liger-Kernel#678", "2025-04", lambda: gradient(loss, X), gradient(spec, X), CLAIM, "liger-kernel")
run(__name__, BUG)
