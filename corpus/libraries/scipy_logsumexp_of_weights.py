"""`scipy.special.logsumexp` with weights: NaN where the largest number has a negative weight

Proof: 2·e^0.5 − e^1 = 0.5791608, and its logarithm is −0.5461752.
"""

import math

import numpy as np
import torch

from corpus.bug import Bug, run
from corpus.foreign import by_numpy
from corpus.seen import assess

X, WEIGHTS = torch.tensor([0.5, 1.0], dtype=torch.float64), torch.tensor([2.0, -1.0], dtype=torch.float64)


def scipy_function(x, b):
    from scipy.special import logsumexp

    return np.asarray(logsumexp(x, b=b))


def spec(x, b):
    return (b * x.exp()).sum().log()


ACTUAL, EXACT = by_numpy(scipy_function), math.log(2 * math.exp(0.5) - math.e)
CLAIM = assess("FWD:given", spec, (X, WEIGHTS), ACTUAL, lambda x, b: spec(x, b) * float("nan"))
run(__name__, Bug("scipy/scipy#22903", "1.15.2", lambda: ACTUAL(X, WEIGHTS).item(), EXACT, CLAIM, "scipy"))
