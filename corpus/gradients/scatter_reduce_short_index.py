"""`torch.scatter_reduce`, "prod": elements of src that were not used get a gradient if the index is smaller than src

Backward gathers in the shape of the index, and divides by all of src, which broadcasts.
Proof: the result is 1·2 and 1·3 from the first row alone; the second row is not in it.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import assess

SRC = torch.tensor([[2.0, 3.0], [5.0, 7.0]])


def actual(src):
    return torch.ones(1, 2).scatter_reduce(0, torch.tensor([[0, 0]]), src, "prod")


def spec(src):
    return src[:1] * 1.0


CLAIM = assess("VJP:grad", spec, (SRC,), actual, right=spec)
run(__name__, Bug("pytorch/pytorch#188843", "2026-07", lambda: gradient(actual, SRC), [[1.0, 1.0], [0.0, 0.0]], CLAIM))
