"""What is wrong in QuACK's and Liger's sources, shown without opassay or a GPU: the lines' arithmetic in NumPy.

python benchmarks/cute/proofs.py
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

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


def variance_of_padded_rows() -> str:
    """Liger's `(x - mean) * (x - mean)` over all columns of a tile of 1792, of which 192 lie behind a row of 1600."""
    x = np.random.default_rng(0).normal(1.0, 1.0, 1600)
    tile = np.concatenate([x, np.zeros(192)])
    counted = ((tile - x.mean()) ** 2).sum() / x.size
    share = np.sqrt(x.var() / counted)
    return f"layer_norm of 1600: variance {x.var():.4f}, counted {counted:.4f}: outputs {share:.4f} of what they are"


def rows_behind_a_matrix() -> str:
    """Liger's copy of the gradient of the sum asks for no row; a block of 128 threads has 4 rows of 256 elements."""
    rows, tile = 6, 128 // 32
    behind = range(rows, -(-rows // tile) * tile)
    return (
        f"fused_add_rms_norm: of {rows} rows {-(-rows // tile)} blocks read {tile} each: rows {[*behind]} are nobody's"
    )


def gradient_turned_in_place() -> str:
    """Liger's rope writes into the gradient that its backward gets; an addition gives both its operands the same."""
    import torch

    class Turn(torch.autograd.Function):
        """(a, b) to (-b, a)."""

        @staticmethod
        def forward(ctx: Any, q: torch.Tensor) -> torch.Tensor:
            return torch.stack([-q[1], q[0]])

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient.copy_(torch.stack([gradient[1], -gradient[0]]))

    q, s = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    (2.0 * s + Turn.apply(q)).backward(torch.tensor([1.0, 3.0]))
    return f"rope: the gradient of s in 2 s + rope(q), of (1, 3), is {s.grad.tolist()}, exact [2.0, 6.0]"


def functions_of_tanh() -> str:
    """What an error of tanh does to x sigmoid(x) and to gelu: as the ISA allows it, and as an H100 had it."""
    lines = []
    for text, error in (("2^-11", 2.0**-11), ("1.11e-5", 1.11e-5)):
        for name, x, u in (("silu", -8.0, -4.0), ("gelu", -3.0, -0.7978845608 * (3.0 + 0.044715 * 27.0))):
            lines.append(f"{name}({x:g}) off by {error * abs(np.tanh(u)) / (1.0 + np.tanh(u)):.2%}")
        lines[-2] = f"tanh off by {text}: {lines[-2]}"
    return "; ".join(lines) + "; a half unit of bfloat16 is 0.39% at most"


if __name__ == "__main__":
    for proof in (
        softmax_of_large_numbers, top_of_float32, variance_of_padded_rows, rows_behind_a_matrix, functions_of_tanh,
        gradient_turned_in_place, residual_alone,
    ):  # fmt: skip
        print(proof())
