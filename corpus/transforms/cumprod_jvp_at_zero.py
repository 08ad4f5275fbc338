"""`torch.cumprod`: the second derivative in forward mode loses terms where a factor is 0

The rule of the tangent divides the output by the input, and what it puts in place of 0/0 is not differentiated.
Proof: (t·(t + 1))″ = 2 everywhere.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import twice_forward
from corpus.seen import ask_property


def second_derivative():
    return twice_forward(lambda t: torch.cumprod(torch.stack((t, t + 1)), 0)[1], 0.0)


def by_hand(x):
    return torch.stack((x[0], x[0] * x[1], x[0] * x[1] * x[2]))


AT = (torch.tensor([2.0, 0.0, 3.0]),)
CLAIM = ask_property("ORD2", by_hand, {"x": (3,)}, lambda x: torch.cumprod(x, 0), right=by_hand, at=AT)
run(__name__, Bug("pytorch/pytorch#196701", "2026-09", second_derivative, 2.0, CLAIM))
