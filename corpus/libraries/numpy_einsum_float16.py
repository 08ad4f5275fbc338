"""`numpy.einsum` of float16: products are cut off to whole numbers

Fast paths kept the sum in a variable of the type in which float16 numbers are stored, an integer.
Proof: 1.5·1.5 + 0.5·0.5 = 2.5, and all of it is exact in float16.
"""

import numpy as np
import torch

from corpus.bug import Bug, run
from corpus.foreign import by_numpy
from corpus.seen import assess

X = torch.tensor([1.5, 0.5], dtype=torch.float16)


def cut_off(x, y):
    return (x * y).trunc().sum()


ACTUAL = by_numpy(lambda x, y: np.einsum("i,i->", x, y))
CLAIM = assess("FWD:given", torch.dot, (X, X), ACTUAL, cut_off)
run(__name__, Bug("numpy/numpy#20305", "1.21.2", lambda: ACTUAL(X, X).item(), 2.5, CLAIM, "numpy"))
