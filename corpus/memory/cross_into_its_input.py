"""`torch.cross(a, b, out=a)`: the second and third components are made of components that are overwritten already

Refused by now. Proof: (1, 2, 3) × (4, 5, 7) = (−1, 5, −3), and a refusal is no wrong number.
"""

import torch

from corpus.bug import REFUSED, Bug, attempt, run
from corpus.seen import assess

A, B = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 7.0])


def observed(a):
    return attempt(lambda: torch.linalg.cross(a, B, out=a))


def in_place(a, b):
    a = a.clone()
    for i in range(3):
        a[i] = a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2]
    return a


def spec(a, b):
    return a.roll(-1) * b.roll(-2) - a.roll(-2) * b.roll(-1)


CLAIM = assess("FWD:given", spec, (A, B), None, in_place, torch.linalg.cross)
run(__name__, Bug("pytorch/pytorch#154999", "2025-06", lambda: observed(A.clone()), REFUSED, CLAIM))
