"""`torch.linalg.det`: the second derivative in forward mode is twice what it should be and more

The rule of the tangent multiplies by the saved factors of the matrix, which the outer jvp takes for constants.
Proof: det [[t + 2, 1], [1, 2t + 3]] is (t + 2)(2t + 3) − 1, whose second derivative is 4.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import twice_forward
from corpus.seen import ask_property


def second_derivative():
    return twice_forward(
        lambda t: torch.linalg.det(torch.stack((t + 2, t * 0 + 1, t * 0 + 1, 2 * t + 3)).reshape(2, 2)), 0.75
    )


def formula(x):
    return x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0]


AT = (torch.tensor([[2.0, 1.0], [1.0, 3.0]]),)
CLAIM = ask_property("ORD2", formula, {"x": (2, 2)}, torch.linalg.det, right=formula, at=AT)
run(__name__, Bug("pytorch/pytorch#196696", "2.12", second_derivative, 4.0, CLAIM))
