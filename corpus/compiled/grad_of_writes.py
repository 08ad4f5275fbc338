"""`torch.func.grad` inside of `torch.compile`: of two additions to one column only one is differentiated

Proof: the column is |x| added twice, so the gradient is 2·sign(x).
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

X = torch.tensor([[1.0, 2.0], [3.0, -4.0]])


def write(x):
    y = torch.zeros_like(x)
    y[:, 0] += x[:, 1].abs()
    y[:, 0] += x[:, 1].abs()
    return y.sum()


def once(x):
    return torch.stack((0 * x[:, 1], x[:, 1].sign()), 1)


COMPILED = torch.compile(torch.func.grad(write))
CLAIM = assess("FWD:given", lambda x: torch.stack((0 * x[:, 1], 2 * x[:, 1].sign()), 1), (X,), COMPILED, once)
run(
    __name__,
    Bug("pytorch/pytorch#136662", "2024-09", lambda: COMPILED(X), [[0.0, 2.0], [0.0, -2.0]], CLAIM, needs=("g++",)),
)
