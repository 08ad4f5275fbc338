"""`Tensor.norm(1)` of bfloat16 on CPU: never more than 256 for ones

The sum was kept in bfloat16, which has 8 digits, so from 256 on adding 1 changes nothing.
Proof: the 1-norm of n ones is n.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

ONES = torch.ones(512, dtype=torch.bfloat16)


def in_bfloat16(x):
    total = x.new_zeros(())
    for value in x.abs():
        total = total + value
    return total


def actual(x):
    return x.norm(1)


CLAIM = assess("FWD:given", lambda x: x.abs().sum(), (ONES,), actual, in_bfloat16)
run(__name__, Bug("pytorch/pytorch#92164", "1.12.1", lambda: ONES.norm(1).item(), 512.0, CLAIM))
