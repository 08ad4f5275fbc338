"""`torch.scatter_reduce`, "amax" with `include_self=False`: the gradient is NaN

It is shared among the elements that are the maximum; where self alone was, and is left out, their number is 0.
Proof: the maximum of 5 and 6 is 6, whose source gets all of it; self[1], which nothing is written to, keeps its own.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import gradient, with_backward
from corpus.seen import assess

X, SRC = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0])


def actual(x, src):
    return x.scatter_reduce(0, torch.tensor([0, 0]), src, "amax", include_self=False)


def shared(g, y, x, src):
    return g * (x == y) / (x == y), g[0] * (src == y[0])


CLAIM = assess(
    "VJP:grad", lambda x, src: torch.stack((src.amax(), x[1])), (X, SRC), actual, with_backward(actual, shared)
)
run(
    __name__,
    Bug("pytorch/pytorch#169263", "2025-11", lambda: gradient(actual, X, SRC), ([0.0, 1.0], [0.0, 1.0]), CLAIM),
)
