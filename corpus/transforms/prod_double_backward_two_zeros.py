"""`torch.prod`: no second derivative where two factors are 0

The gradient was computed so that it required none itself; its derivative was 0 or an error.
Proof: ∂²(abcd)/∂c∂d = ab = 6 for a, b = 2, 3, and all other second derivatives are 0 where c = d = 0.
"""

import torch

from corpus.bug import Bug, attempt, run
from corpus.derivatives import twice_backward, with_backward
from corpus.seen import ask_property

X = torch.tensor([2.0, 3.0, 0.0, 0.0])


def detached(g, y, x):
    return g * torch.stack([x.detach()[[j for j in range(4) if j != i]].prod() for i in range(4)])


CLAIM = ask_property("ORD2", lambda x: x[0] * x[1] * x[2] * x[3], {"x": (4,)}, torch.prod,
                     with_backward(torch.prod, detached), at=(X,), without=("func", "jvp"))  # fmt: skip
run(__name__, Bug("pytorch/pytorch#106789", "2023-08", lambda: attempt(twice_backward, torch.prod, X),
                  [0.0, 0.0, 6.0, 6.0], CLAIM))  # fmt: skip
