"""`torch.logcumsumexp`: NaN after two −∞ in a row

The step was log1p(e^(min − max)) + max, and −∞ − (−∞) is NaN.
Proof: log(0 + 0) is −∞, and log(0 + 0 + e) is 1.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import judged

INF = float("inf")
X = torch.tensor([-INF, -INF, 1.0])


def stepwise(x):
    found = [x[0]]
    for value in x[1:]:
        low, high = torch.minimum(found[-1], value), torch.maximum(found[-1], value)
        found.append(torch.log1p(torch.exp(low - high)) + high)
    return torch.stack(found)


def actual(x):
    return torch.logcumsumexp(x, 0)


SEEN = judged("GIVEN", lambda x: torch.log(torch.cumsum(torch.exp(x), 0)), (X,), actual, stepwise)
run(__name__, Bug("pytorch/pytorch#52213", "1.7", lambda: actual(X), [-INF, -INF, 1.0], SEEN))
