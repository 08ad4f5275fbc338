"""Liger, `LigerCrossEntropyFunction` with `reduction="none"`: the gradients of all rows get the first row's cotangent

Backward takes the cotangent for a number; a weight per row, or a first row that is ignored, spoils the rest.
Proof: the loss of a row depends on that row alone, so a row of weight 0 has gradient 0, and another has not.
"""

import os

import torch

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import judged

X, TARGET, WEIGHTS = torch.tensor([[1.5, 0.5], [-0.5, 1.0]]), torch.tensor([0, 0]), torch.tensor([0.0, 1.0])


def actual(x):
    os.environ["TRITON_INTERPRET"] = "1"
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return LigerCrossEntropyFunction.apply(x * 1.0, TARGET, None, -100, 0.0, 0.0, "none")[0] * WEIGHTS


def spec(x):
    return -x.log_softmax(-1)[:, 0] * WEIGHTS


SEEN = judged("GRAD", spec, (X,), actual, lambda x: spec(x) * 0, spec)
run(__name__, Bug("linkedin/Liger-Kernel#678", "0.5", lambda: gradient(actual, X)[1].abs().sum().item() > 0, True,
                  SEEN, "liger-kernel"))  # fmt: skip
