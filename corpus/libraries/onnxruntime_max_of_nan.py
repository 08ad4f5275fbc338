"""ONNX Runtime, `ReduceMax`: whether a NaN counts depends on how many there are

Vectors of four are compared one way, and what is left over another way.
Proof: the other numbers of NaNs, and the standard's word for maxima: a NaN makes a NaN.
"""

import torch

from corpus.bug import Bug, run
from corpus.foreign import by_onnxruntime
from corpus.seen import assess

NAN = float("nan")
X = torch.tensor([NAN, NAN, NAN, 42.0])

ACTUAL = by_onnxruntime("ReduceMax")


def spec(x):
    return x.amax(0, keepdim=True)


CLAIM = assess("FWD:given", spec, (X,), ACTUAL, lambda x: x[3:], spec)
run(__name__, Bug("microsoft/onnxruntime#10514", "1.10", lambda: [ACTUAL(X[i:]).isnan().item() for i in range(3)],
                  [True, True, True], CLAIM, "onnxruntime"))  # fmt: skip
