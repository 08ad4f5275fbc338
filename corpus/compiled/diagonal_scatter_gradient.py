"""`torch.diagonal_scatter` compiled: the gradient of what is not overwritten is 0

Proof: off the diagonal the result is the input, so the gradient of its sum is 1 there, and 0 on the diagonal.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import gradient, with_backward
from corpus.seen import assess

X, ROW = torch.ones(2, 2), torch.zeros(2)


def actual(x):
    return torch.diagonal_scatter(x, ROW)


COMPILED = torch.compile(actual)
FAULT = with_backward(actual, lambda g, y, x: 0 * g)
CLAIM = assess("VJP:grad", lambda x: x * (1 - torch.eye(2)), (X,), COMPILED, FAULT)
run(__name__, Bug("pytorch/pytorch#182012", "2026-04", lambda: gradient(COMPILED, X), [[0.0, 1.0], [1.0, 0.0]], CLAIM,
                  needs=("g++",)))  # fmt: skip
