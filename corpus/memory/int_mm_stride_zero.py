"""`torch._int_mm` on CPU: a row of stride 0 gives zeros

The stride of an axis of length 1 means nothing, and inductor writes 0 there; oneDNN gets it as it is.
Proof: a product of ones over 64 terms is 64.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

ROW, MATRIX = torch.ones(1, 64, dtype=torch.int8), torch.ones(64, 64, dtype=torch.int8)


def actual(a, b):
    return torch._int_mm(a.as_strided((1, 64), (0, 1)), b)


def spec(a, b):
    return (a.long()[:, :, None] * b.long()).sum(1).int()


CLAIM = assess("FWD:given", spec, (ROW, MATRIX), actual, right=spec)
run(__name__, Bug("pytorch/pytorch#195066", "2.15.0.dev", lambda: actual(ROW, MATRIX)[0, 0].item(), 64, CLAIM))
