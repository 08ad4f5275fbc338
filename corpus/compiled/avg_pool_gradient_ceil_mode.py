"""`F.avg_pool1d` compiled: with `ceil_mode` the gradient of the last window is too small

Backward divides by the size of the kernel, also where the window hangs over the edge and forward divides by less.
Proof: the last window of 5 by windows of 3 and stride 3 has two elements, so each has the slope 1/2.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import assess

X = torch.arange(5.0).reshape(1, 1, 5)


def pool(x):
    return functional.avg_pool1d(x, 3, 3, ceil_mode=True)


COMPILED = torch.compile(pool)
CLAIM = assess("VJP:grad", pool, (X,), COMPILED, right=pool)
run(__name__, Bug("pytorch/pytorch#198119", "2.14", lambda: gradient(COMPILED, X)[0, 0, 3:], [0.5, 0.5], CLAIM,
                  needs=("g++",)))  # fmt: skip
