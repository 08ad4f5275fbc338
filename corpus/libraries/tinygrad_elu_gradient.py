"""tinygrad, `Tensor.selu`: the gradient is NaN from 89 on

e^x is taken of all numbers and thrown away right of 0, where it overflows; its slope is ∞ times 0.
Proof: right of 0 the function is 1.0507·x.
"""

import torch

from corpus.bug import Bug, run
from corpus.foreign import by_tinygrad
from corpus.seen import assess

X = torch.tensor([100.0, 1.0])


def by_gradient(x):
    x.requires_grad = True
    return x.selu().sum().gradient(x)[0]


def spec(x):
    return 1.0507 * torch.ones_like(x)


ACTUAL = by_tinygrad(by_gradient)
CLAIM = assess("FWD:given", spec, (X,), ACTUAL, lambda x: 1.0507 + 0 * torch.exp(x), spec)
run(__name__, Bug("tinygrad/tinygrad#17852", "2026-08", lambda: ACTUAL(X), [1.0507, 1.0507], CLAIM, "tinygrad"))
