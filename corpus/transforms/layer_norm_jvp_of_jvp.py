"""`F.layer_norm`: the second derivative in forward mode is wrong

The rule of the tangent reads the saved mean and 1/σ as constants, so the outer jvp does not see them change.
Proof: of (t, 0) with ε = 1 the first output is t/√(t² + 4), whose second derivative at 3/2 is −18/2.5⁵ = −0.18432.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.derivatives import twice_forward
from corpus.seen import ask_property


def second_derivative():
    return twice_forward(lambda t: functional.layer_norm(torch.stack((t, t * 0)), (2,), eps=1.0)[0], 1.5)


def formula(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


def actual(x):
    return functional.layer_norm(x, x.shape[-1:])


CLAIM = ask_property("ORD2", formula, {"x": ("rows", "n")}, actual, right=formula)
run(__name__, Bug("pytorch/pytorch#196700", "2026-09", second_derivative, -0.18432, CLAIM))
