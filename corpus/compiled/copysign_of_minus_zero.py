"""`torch.copysign(x, -0.0)` compiled: the sign of the zero is lost

Proof: IEEE 754 has the sign of −0 as that of any other number, and eager torch copies it.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

X = torch.tensor([1.0, -2.0])


def actual(x):
    return torch.copysign(x, -0.0)


COMPILED = torch.compile(actual)
CLAIM = assess("FWD:given", lambda x: -x.abs(), (X,), COMPILED, torch.abs)
run(__name__, Bug("pytorch/pytorch#174172", "2026-02", lambda: COMPILED(X), [-1.0, -2.0], CLAIM, needs=("g++",)))
