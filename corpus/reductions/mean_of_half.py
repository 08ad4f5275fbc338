"""`torch.mean` of float16 on CPU: infinite or NaN from 65,520 ones on

The mean was the sum, stored in float16, divided by the number of elements, stored in float16.
Proof: the mean of ones is 1.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

ONES = torch.ones(100_000, dtype=torch.float16)


def sum_stored(x):
    return x.sum() / torch.tensor(float(x.numel())).half()


CLAIM = assess("FWD:given", torch.mean, (ONES,), torch.mean, sum_stored)
run(__name__, Bug("pytorch/pytorch#91597", "2023-01", lambda: ONES.mean().item(), 1.0, CLAIM))
