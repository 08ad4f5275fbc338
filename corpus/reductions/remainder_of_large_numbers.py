"""`torch.remainder`, float32: larger than the divisor

It was a − b·floor(a/b) in float32, where the quotient is rounded by more than 1.
Proof: 2749682432 = 36·76380067 + 20, and both are float32 numbers.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

A, B = torch.tensor([2749682432.0]), torch.tensor([36.0])


def by_quotient(a, b):
    return a - b * torch.floor(a / b)


CLAIM = assess("FWD:given", torch.remainder, (A, B), torch.remainder, by_quotient)
run(__name__, Bug("pytorch/pytorch#24861", "0.4.1", lambda: torch.remainder(A, B), [20.0], CLAIM))
