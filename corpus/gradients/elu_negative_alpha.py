"""`F.elu`: the gradient is 1 on both sides if alpha is negative

Backward told the branches apart by the sign of the result, which a negative alpha makes positive on both sides.
Proof: left of 0 the function is alpha·(e^x − 1), so its slope at −1 is −2/e.
"""

import math

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.derivatives import gradient, with_backward
from corpus.seen import assess

X = torch.tensor([-1.0, 1.0])


def actual(x):
    return functional.elu(x, -2.0)


FAULT = with_backward(actual, lambda g, y, x: torch.where(y > 0, g, g * (y - 2.0)))
CLAIM = assess("VJP:grad", lambda x: torch.where(x > 0, x, -2 * torch.expm1(x)), (X,), actual, FAULT)
run(__name__, Bug("pytorch/pytorch#47671", "1.5", lambda: gradient(actual, X), [-2 / math.e, 1.0], CLAIM))
