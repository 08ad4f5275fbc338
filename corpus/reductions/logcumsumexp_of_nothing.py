"""`torch.logcumsumexp`: NaN after two −∞ in a row

The step was log1p(e^(min − max)) + max, and −∞ − (−∞) is NaN.
Proof: log(0 + 0) is −∞, and log(0 + 0 + e) is 1.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

INF = float("inf")
X = torch.tensor([-INF, -INF, 1.0])


def stepwise(x):
    sums = [x[0]]
    for value in x[1:]:
        low, high = torch.minimum(sums[-1], value), torch.maximum(sums[-1], value)
        sums.append(torch.log1p(torch.exp(low - high)) + high)
    return torch.stack(sums)


def actual(x):
    return torch.logcumsumexp(x, 0)


CLAIM = assess("FWD:given", lambda x: torch.log(torch.cumsum(torch.exp(x), 0)), (X,), actual, stepwise)
run(__name__, Bug("pytorch/pytorch#52213", "1.7", lambda: actual(X), [-INF, -INF, 1.0], CLAIM))
