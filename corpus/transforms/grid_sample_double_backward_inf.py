"""`F.grid_sample`: double backward is NaN where a point far outside of an image that has an infinity is padded by 0

Taps that are left out are multiplied by 0 instead, and their addresses are clamped into the image, where the ∞ is.
Proof: around a point that lies two pixels outside the result is 0 for all images, and so are all of its derivatives.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.derivatives import twice_backward
from corpus.seen import ask_property

IMAGE, X = torch.tensor([1.0, 2.0, float("inf")]).reshape(1, 1, 1, 3), torch.tensor([3.0])


def actual(x):
    grid = torch.stack((x, 0 * x), -1).reshape(1, 1, -1, 2)
    return functional.grid_sample(IMAGE.to(x), grid, padding_mode="zeros", align_corners=True).reshape(-1)


ATTEMPT = ask_property(
    "ORD2", lambda x: 0 * x, {"x": (1,)}, actual, at=(X,), right=lambda x: 0 * x, without=("func", "jvp")
)
run(__name__, Bug("pytorch/pytorch#194787", "2.12.1", lambda: twice_backward(actual, X), [0.0], ATTEMPT))
