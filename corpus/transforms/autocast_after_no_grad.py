"""`torch.autocast`: no gradient for a weight that was first used under `torch.no_grad`

The copy of the weight in bfloat16 is cached, and the one that was made without a graph serves the later call as well.
Proof: x·w has the gradient x in w, whatever was called before.
"""

import torch

from corpus.bug import Bug, attempt, run
from corpus.derivatives import gradient
from corpus.seen import assess

X, W = torch.ones(1, 2), torch.ones(2, 1)


def actual(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            x @ w
        return (x @ w).float()


def forget(x, w):
    return x @ w.detach()


CLAIM = assess("VJP:grad", torch.matmul, (X, W), actual, forget, contract="torch+bfloat16_factors")
run(__name__, Bug("pytorch/pytorch#112583", "2023-11", lambda: attempt(gradient, lambda w: actual(X, w), W), [[1], [1]],
                  CLAIM))  # fmt: skip
