"""`Tensor.masked_fill_` of an expanded tensor: the whole row is filled

All elements of the row are one number in memory. There is a warning, and no error.
Proof: `masked_fill` of the same tensor and mask.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

X, MASK = torch.tensor([[0.0], [1.0]]), torch.tensor([[False, True], [False, False]])


def actual(x, mask):
    return x.clone().expand(2, 2).masked_fill_(mask, 3.0)


def spec(x, mask):
    return torch.where(mask, 3.0, x.expand(2, 2))


CLAIM = assess("FWD:given", spec, (X, MASK), actual, right=spec)
run(__name__, Bug("pytorch/pytorch#39639", "2020-06", lambda: actual(X, MASK), [[0.0, 3.0], [1.0, 1.0]], CLAIM))
