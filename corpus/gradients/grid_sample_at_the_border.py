"""`F.grid_sample`, padding "border": a point on the last pixel gets a gradient as if zeros lay beyond it

The neighbour outside was taken for 0, so the slope was that from the last pixel down to 0.
Proof: beyond the border the function is constant and before it it rises by 1 a pixel, so a slope is between 0 and 2.
"""

import numpy as np
import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.derivatives import gradient, with_backward
from corpus.seen import assess

IMAGE, X = torch.arange(5.0).reshape(1, 1, 1, 5), torch.tensor([1.0, 0.25])


def actual(x):
    grid = torch.stack((x, 0 * x), -1).reshape(1, 1, -1, 2)
    return functional.grid_sample(IMAGE, grid, padding_mode="border", align_corners=True).reshape(-1)


def formula(x):
    return np.clip((x + 1) * 2, 0, 4)


FAULT = with_backward(actual, lambda g, y, x: g * torch.tensor([-8.0, 2.0]))
CLAIM = assess("VJP:grad", formula, (X,), actual, FAULT)
run(__name__, Bug("pytorch/pytorch#23925", "2019-08", lambda: bool(0 <= gradient(actual, X)[0] <= 2), True, CLAIM))
