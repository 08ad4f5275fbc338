"""`F.conv2d` of bfloat16 on CPU: a window of 2×2 over an image of 2×2 adds up one of four products

Said of one machine and oneDNN; without it the result was right.
Proof: four products of 1 and 1 make 4.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.seen import assess

X, WEIGHT = torch.ones(1, 1, 2, 2).bfloat16(), torch.ones(1, 1, 2, 2).bfloat16()


def one_tap(x, weight):
    return x[..., :1, :1] * weight[..., :1, :1]


CLAIM = assess("DATA:integers", functional.conv2d, (X, WEIGHT), functional.conv2d, one_tap)
run(__name__, Bug("pytorch/pytorch#163347", "2.5.1", lambda: functional.conv2d(X, WEIGHT).item(), 4.0, CLAIM))
