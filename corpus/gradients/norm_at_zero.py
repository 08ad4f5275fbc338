"""`torch.norm`: the gradient at zero is NaN

The gradient was x divided by the norm. Since 0.3 it is 0, the subgradient that torch documents for kinks.
Proof: the contract; and a norm has a minimum at 0, so 0 is a subgradient.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import Gap, judged

X = torch.zeros(3)


def divided(x):
    return (x * x).sum().sqrt()


TRIED = judged("GRAD", torch.linalg.vector_norm, (X,), planted=divided)
SEEN = Gap(
    "Where a formula's slope is 0 times infinity, as that of a root of squares at 0, any slope is let through.", TRIED
)
run(__name__, Bug("pytorch/pytorch#2421", "0.2", lambda: gradient(torch.norm, X), [0.0, 0.0, 0.0], SEEN))
