"""`F.conv2d` on CPU by MKL-DNN: a weight that is not contiguous is read as if it were

Proof: the same convolution with a contiguous copy; all numbers are small integers, so every order gives the same.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.seen import assess

X, WEIGHT = torch.arange(9.0).reshape(1, 1, 3, 3), torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T[None, None]


def strides_forgotten(x, weight):
    return functional.conv2d(x, weight.as_strided((1, 1, 2, 2), (4, 4, 2, 1)))


CLAIM = assess("LAYOUT:strides", functional.conv2d, (X, WEIGHT), functional.conv2d, strides_forgotten)
run(__name__, Bug("pytorch/pytorch#16018", "1.0", lambda: functional.conv2d(X, WEIGHT)[0, 0],
                  [[25.0, 35.0], [55.0, 65.0]], CLAIM))  # fmt: skip
