"""tinygrad, `Tensor.logcumsumexp`: NaN where everything up to there is −∞

The running maximum is subtracted, and −∞ − (−∞) is NaN.
Proof: log 0 is −∞, and log(0 + e) is 1.
"""

import torch

from corpus.bug import Bug, run
from corpus.foreign import by_tinygrad
from corpus.seen import ask_property

X = torch.tensor([float("-inf"), 1.0])


def spec(x):
    return torch.logcumsumexp(x, 0)


def shifted(x):
    largest = torch.cummax(x, 0).values
    return torch.log(torch.exp(x[:, None] - largest).triu().sum(0)) + largest


ACTUAL = by_tinygrad(lambda x: x.logcumsumexp())
CLAIM = ask_property("SPECIAL", spec, {"x": (2,)}, ACTUAL, shifted, spec, at=(X,), dtype="float32", order=0)
run(__name__, Bug("tinygrad/tinygrad#17853", "2026-08", lambda: ACTUAL(X), [float("-inf"), 1.0], CLAIM, "tinygrad"))
