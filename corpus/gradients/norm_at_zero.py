"""`torch.norm`: the gradient at zero is NaN

The gradient was x divided by the norm. Now it is 0.
Proof: a norm has its minimum at 0, so 0 is a subgradient there, which is what torch takes at such points.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import Gap, assess

X = torch.zeros(3)


def divided(x):
    return (x * x).sum().sqrt()


ATTEMPT = assess("VJP:grad", torch.linalg.vector_norm, (X,), fault=divided)
CLAIM = Gap(
    "Where a formula's slope is 0 times infinity, as that of a root of squares at 0, any slope is let through.", ATTEMPT
)
run(__name__, Bug("pytorch/pytorch#2421", "2017-08", lambda: gradient(torch.norm, X), [0.0, 0.0, 0.0], CLAIM))
