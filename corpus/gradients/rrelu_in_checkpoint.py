"""`nn.RReLU` in a checkpoint: gradients come from memory that was never written

The recomputation stops as soon as the tensors of backward are there, which is before the noise has been drawn.
Proof: the function is linear left of 0, so the gradient at −1 is minus the output.
"""

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import assess

X = -torch.ones(6)


def draw(x):
    torch.manual_seed(0)
    return functional.rrelu(x, training=True)


def actual(x):
    return checkpoint(draw, x, use_reentrant=False)


SLOPES = -draw(X)
CLAIM = assess("VJP:grad", lambda x: torch.where(x > 0, x, SLOPES * x), (X,), actual, right=draw)
run(__name__, Bug("pytorch/pytorch#193671", "2026-08", lambda: gradient(actual, X), lambda: SLOPES, CLAIM))
