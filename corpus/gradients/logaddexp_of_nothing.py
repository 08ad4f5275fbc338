"""`torch.logaddexp`: the gradient at (−∞, −∞) is NaN

Backward takes e^(x − result), and −∞ − (−∞) is NaN. In sums of probabilities one impossible term spoils all gradients.
Proof: ((−∞ ⊕ −∞) ⊕ 2) and −∞ ⊕ (−∞ ⊕ 2) are one function, and the second form gives the gradient 0.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import assess

NOTHING, TWO = torch.full((1,), float("-inf")), torch.full((1,), 2.0)


def actual(x, y):
    return torch.logaddexp(torch.logaddexp(x, NOTHING), y)


CLAIM = assess("VJP:grad", torch.logaddexp, (NOTHING, TWO), actual, right=torch.logaddexp)
run(
    __name__,
    Bug("pytorch/pytorch#49724", "2020-12", lambda: gradient(actual, NOTHING, TWO), ([0.0], [1.0]), CLAIM),
)
