"""`F.layer_norm` over one element: the weight gets a gradient, though the output does not depend on it

Forward gives exactly the bias. Backward computes x·rstd and mean·rstd apart, rounds both, and sums the differences.
Proof: x − mean(x) is 0 for one element, whatever the weight.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.derivatives import gradient
from corpus.seen import assess

X, ONE = torch.linspace(0.1, 3.0, 50).reshape(-1, 1), torch.ones(1)


def actual(x, weight):
    return functional.layer_norm(x, (1,), weight)


def spec(x, weight):
    return (x - x) * weight


CLAIM = assess("VJP:grad", spec, (X, ONE), actual, right=spec)
run(__name__, Bug("pytorch/pytorch#188375", "2026-06", lambda: gradient(lambda w: actual(X, w), ONE), [0.0], CLAIM))
