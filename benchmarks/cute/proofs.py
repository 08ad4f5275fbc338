"""What is wrong in QuACK's sources, shown without opassay and without a GPU: the lines' arithmetic in NumPy.

python benchmarks/cute/proofs.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np

_LOG2_E = np.float32(np.log2(np.e))


def softmax_of_large_numbers() -> str:
    """`exp2(x * log2_e - (max_x * log2_e))` with each product in float32, once rounded with the difference or twice."""
    x = np.array([3e38, 3e38, 1.0], np.float32)
    with np.errstate(all="ignore"):
        most = x.max() * _LOG2_E
        once = np.exp2((x.astype(np.float64) * _LOG2_E - np.float64(most)).astype(np.float32))
        twice = np.exp2(x * _LOG2_E - most)
        exact = np.exp(x.astype(np.float64) - x.max())
    parts = [f"{each / each.sum()}" for each in (once, twice, exact)]
    return "softmax of {}: rounded once {}, twice {}, exact {}".format(x, *parts)


def top_of_float32() -> str:
    """`(tXrX_i32[i] & ~idx_mask) | encoded_idx`, and back: what is left of values beside the columns, of 256."""
    values = np.array([1.0000001, 3.1415927, np.inf], np.float32)
    mask, columns = np.int32(255), np.arange(3, dtype=np.int32)
    encoded = (values.view(np.int32) & ~mask) | (~columns & mask)
    back = (encoded & ~mask).view(np.float32)
    return f"topk of {values}: sorted as {encoded.view(np.float32)}, returned as {back}"


def residual_alone() -> str:
    """Forward keeps 1 / rms where one of the first three operands requires a gradient; the residual is the fourth."""
    import quack

    text = Path(inspect.getfile(quack)).with_name("rmsnorm.py").read_text()
    line = next(each.strip() for each in text.splitlines() if "needs_input_grad" in each)
    return f"rmsnorm: `{line}`; the operands are x, weight, bias, residual"


if __name__ == "__main__":
    for proof in (softmax_of_large_numbers, top_of_float32, residual_alone):
        print(proof())
