"""`scipy.special.logsumexp`: 0 for (0, −40)

It was log(1 + e^−40) plus 0, and 1 + e^−40 is 1. Proof: log(1 + e^−40) = e^−40 to 17 digits.
"""

import math

import numpy as np
import torch

from corpus.bug import Bug, run
from corpus.foreign import by_numpy
from corpus.seen import assess

X = torch.tensor([0.0, -40.0], dtype=torch.float64)


def scipy_function(x):
    from scipy.special import logsumexp

    return np.asarray(logsumexp(x))


def spec(x):
    return torch.log1p(torch.exp(x[1] - x[0])) + x[0]


ACTUAL = by_numpy(scipy_function)
CLAIM = assess("FWD:given", spec, (X,), ACTUAL, lambda x: x.exp().sum().log())
run(__name__, Bug("scipy/scipy#18295", "2023-04", lambda: ACTUAL(X).item(), math.exp(-40), CLAIM, "scipy"))
