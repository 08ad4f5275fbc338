"""`torch.floor_divide`: rounds towards 0

Proof: the floor of −1/2 is −1; so it is in Python, in NumPy, and by now in torch.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

A, B = torch.tensor([-1.0, 7.0]), torch.tensor([2.0, 2.0])


def truncated(a, b):
    return torch.trunc(a / b)


CLAIM = assess("FWD:given", lambda a, b: torch.floor(a / b), (A, B), torch.floor_divide, truncated)
run(__name__, Bug("pytorch/pytorch#44858", "1.5", lambda: torch.floor_divide(A, B), [-1.0, 3.0], CLAIM))
