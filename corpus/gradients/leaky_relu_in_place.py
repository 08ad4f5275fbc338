"""`F.leaky_relu_`: the gradient of a negative slope is that of the other branch

In place, backward has the result alone, and a negative slope makes it positive on both sides. Refused since 1.5.
Proof: left of 0 the slope is the argument itself; a refusal is no wrong number.
"""

import torch
from torch.nn import functional

from corpus.bug import REFUSED, Bug, attempt, run
from corpus.derivatives import gradient, with_backward
from corpus.seen import assess

X = torch.tensor([-1.0, 1.0])


def observed():
    return attempt(gradient, lambda x: functional.leaky_relu_(x.clone(), -2.0), X)


def spec(x):
    return torch.where(x > 0, x, -2 * x)


FAULT = with_backward(spec, lambda g, y, x: torch.where(y > 0, g, -2 * g))
CLAIM = assess("VJP:grad", spec, (X,), None, FAULT, right=spec)
run(__name__, Bug("pytorch/pytorch#31938", "1.3.1", observed, REFUSED, CLAIM))
