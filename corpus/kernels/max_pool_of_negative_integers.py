"""`F.max_pool2d` of negative integers in channels_last: 0

The kernel for that memory format began with 0, which is the least number of an unsigned type only.
Proof: the maxima of −12 to −9 and of −8 to −5 are −9 and −5.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.seen import assess

X = (torch.arange(8).reshape(1, 2, 2, 2) - 12).contiguous(memory_format=torch.channels_last)


def from_zero(x):
    return functional.max_pool2d(x, 2).clamp(min=0)


def actual(x):
    return functional.max_pool2d(x.contiguous(memory_format=torch.channels_last), 2)


CLAIM = assess("FWD:given", lambda x: functional.max_pool2d(x, 2), (X.float(),), actual, from_zero)
run(__name__, Bug("pytorch/pytorch#109586", "2.1.0.dev", lambda: actual(X).flatten().tolist(), [-9, -5], CLAIM))
