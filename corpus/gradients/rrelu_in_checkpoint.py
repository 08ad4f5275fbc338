"""`nn.RReLU` in a checkpoint: gradients come from memory that was never written

The recomputation stops as soon as the tensors of backward are there, which is before the noise has been drawn.
Proof: the function is linear left of 0, so the gradient at −1 is minus the output.
"""

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import judged

X = -torch.ones(6)


def drawn(x):
    torch.manual_seed(0)
    return functional.rrelu(x, training=True)


def actual(x):
    return checkpoint(drawn, x, use_reentrant=False)


SLOPES = -drawn(X)
SEEN = judged("GRAD", lambda x: torch.where(x > 0, x, SLOPES * x), (X,), actual, right=drawn)
run(__name__, Bug("pytorch/pytorch#193671", "2026-08", lambda: gradient(actual, X), lambda: SLOPES, SEEN))
