"""`torch.special.polygamma(0, x)` compiled: −∞

It was lowered to ζ(1, x), which is infinite; of order 0 the function is digamma.
Proof: ψ(2) = 1 − γ, with Euler's constant γ = 0.5772156649.
"""

import numpy as np
import torch

from corpus.bug import Bug, run
from corpus.seen import assess

TWO = torch.tensor([2.0], dtype=torch.float64)


def digamma(x):
    far = x + 100.0
    squares = 1.0 / np.square(far)
    series = np.log(far) - 0.5 / far - squares / 12 + squares**2 / 120 - squares**3 / 252
    return series - sum(1.0 / (x + k) for k in range(100))


COMPILED = torch.compile(lambda x: torch.special.polygamma(0, x))
CLAIM = assess("FWD:given", digamma, (TWO,), COMPILED, lambda x: x - float("inf"))
run(__name__, Bug("pytorch/pytorch#143648", "2.6.0a0", lambda: COMPILED(TWO), [1 - 0.57721566490153286], CLAIM,
                  needs=("g++",)))  # fmt: skip
