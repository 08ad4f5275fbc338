"""ONNX Runtime, `LRN`: behind a large channel the sum of squares has lost its digits

The sum of squares of a window is kept up from channel to channel: the square that enters is added, and the one that
leaves subtracted. What a large square rounded away does not come back when it leaves, and the error goes through all
channels behind. Of 1e6, 10, 10, 10, 10 the third is 5.95 in place of 9.93 with an alpha of 1e-4, and with a larger
one it may be infinite.

**Documented**: the formula, in which each channel has a sum of its own window.

**Does it matter?** Older convolutional networks have it. One channel that is a few hundred times larger than the
others changes the first digits of those behind, and the sum may become negative, of which a power is NaN.
"""

from __future__ import annotations

import mpmath
import torch
from onnx_model import run_operator
from proof import Proof, numbers, run

LIBRARY, VERSION = "onnxruntime", "1.32.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    squares = torch.nn.functional.pad(x * x, (1, 1))
    return x / (1.0 + (squares[:-2] + squares[1:-1] + squares[2:]) * 2.0**-13) ** 0.75


def proof() -> Proof:
    x = torch.tensor([1e6, 10.0, 10.0, 10.0, 10.0])
    attributes = {"size": 3, "alpha": 3 * 2.0**-13, "beta": 0.75, "bias": 1.0}
    values = [mpmath.mpf(0), *numbers(x), mpmath.mpf(0)]
    windows = [mpmath.fsum(value**2 for value in values[i : i + 3]) for i in range(5)]
    exact = [
        value / (1 + window / 2**13) ** mpmath.mpf("0.75") for value, window in zip(numbers(x), windows, strict=True)
    ]
    return Proof(
        "LRN of the channels [1e6, 10, 10, 10, 10], size 3", run_operator("LRN", x.reshape(1, 5, 1, 1), **attributes),
        exact, spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
