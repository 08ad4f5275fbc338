"""`torch.autocast`: no gradient for a weight that was first used under `torch.no_grad`

The copy of the weight in bfloat16 is cached, and the one that was made without a graph serves the later call as well.
Proof: x·w has the gradient x in w, whatever was called before.
"""

import torch

from corpus.bug import Bug, refused, run
from corpus.derivatives import gradient
from corpus.seen import judged

X, W = torch.ones(1, 2), torch.ones(2, 1)


def actual(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            x @ w
        return (x @ w).float()


def forgotten(x, w):
    return x @ w.detach()


SEEN = judged("GRAD", torch.matmul, (X, W), actual, forgotten, contract="torch+bfloat16_factors")
run(__name__, Bug("pytorch/pytorch#112583", "2023-11", lambda: refused(gradient, lambda w: actual(X, w), W), [[1], [1]],
                  SEEN))  # fmt: skip
