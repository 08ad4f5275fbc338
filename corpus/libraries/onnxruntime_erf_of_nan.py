"""ONNX Runtime, `Erf`: 1 for NaN

The argument is clamped by an instruction that returns its other operand where one is NaN.
Proof: a function of NaN is NaN; so are the ways of the same kernel that have no vectors.
"""

import torch

from corpus.bug import Bug, run
from corpus.foreign import by_onnxruntime
from corpus.seen import assess

X = torch.tensor([float("nan"), 0.5, -0.5, float("nan")])


def clamped(x):
    return torch.erf(torch.where(x < 3.925, x, 3.925))


ACTUAL = by_onnxruntime("Erf")
CLAIM = assess("FWD:given", torch.erf, (X,), ACTUAL, clamped, torch.erf)
run(__name__, Bug("microsoft/onnxruntime#28462", "2026-05", lambda: ACTUAL(X).isnan().tolist(),
                  [True, False, False, True], CLAIM, "onnxruntime"))  # fmt: skip
