"""`a -= a[:, :1]` on CPU: the column is 0 once it has been reached, and the columns after it stay as they are

The operand is a view of what is written, and broadcast, so torch's test of overlaps does not see it.
Proof: NumPy makes a copy in this case, and so does torch on CUDA; a − a[:, :1] is [[0, 1, 2], [0, 1, 2]].
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

A = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def actual(a):
    a = a.clone()
    a -= a[:, :1]
    return a


def spec(a):
    return a - a[:, :1]


CLAIM = assess("FWD:given", spec, (A,), actual, right=spec)
run(__name__, Bug("pytorch/pytorch#76891", "2022-05", lambda: actual(A), [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]], CLAIM))
