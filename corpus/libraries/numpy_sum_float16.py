"""`numpy.sum` of float16 along the first axis: never more than 2048 for ones

Rows are added to one another in float16, which has 11 digits. Along the last axis it is right. The thread was closed
without a change.
Proof: the sum of 4096 ones is 4096, which float16 has.
"""

import numpy as np
import torch

from corpus.bug import Bug, run
from corpus.foreign import by_numpy
from corpus.seen import assess

ONES = torch.ones(4096, 2, dtype=torch.float16)


def spec(x):
    return x.sum(0)


ACTUAL = by_numpy(lambda x: np.sum(x, 0))
CLAIM = assess("FWD:given", spec, (ONES,), ACTUAL, right=spec)
run(__name__, Bug("numpy/numpy#15785", "1.18.2", lambda: ACTUAL(ONES), [4096.0, 4096.0], CLAIM, "numpy"))
