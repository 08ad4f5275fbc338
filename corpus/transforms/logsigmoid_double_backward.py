"""`F.logsigmoid`: the second derivative is 0 for large x, where it should be −e^−x

Backward is differentiated as 1 − σ, whose digits are gone from 37 on in float64.
Proof: the function minus x is its own mirror image, so the second derivative is even; at −40 it is right.
"""

import math

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.derivatives import twice_backward
from corpus.seen import ask_property

X = torch.tensor([40.0, 38.0], dtype=torch.float64)


def formula(x):
    return -torch.log1p(torch.exp(-x))


CLAIM = ask_property(
    "ORD2", formula, {"x": (2,)}, functional.logsigmoid, right=formula, at=(X,), without=("func", "jvp")
)
run(__name__, Bug("pytorch/pytorch#195530", "2026-09", lambda: twice_backward(functional.logsigmoid, X),
                  [-math.exp(-40), -math.exp(-38)], CLAIM))  # fmt: skip
