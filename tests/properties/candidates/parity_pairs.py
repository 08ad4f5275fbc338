"""Pairs of implementations of one spec, and why each two differ: ten of each kind.

Rows: the spec, which is also the first of the pair if that is None; the second; the shapes and the dtype of its
operands, and a factor on the first of them; what the answer of PARITY begins with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., Tensor]


class Pair(NamedTuple):
    """Two implementations, and the first word of why they differ."""

    word: str
    spec: Function
    first: Function | None
    second: Function
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32
    factor: float = 1.0

    def operands(self) -> tuple[Tensor, ...]:
        """Normal numbers of a fixed seed."""
        generator = torch.Generator().manual_seed(5)
        first, *others = (torch.randn(shape, generator=generator) for shape in self.shapes)
        return tuple(t.to(self.dtype) for t in (first * self.factor, *others))


def _mm(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def _mm_in_pieces(x: Tensor, w: Tensor) -> Tensor:
    total = x.new_zeros(x.shape[0], w.shape[1], dtype=torch.float32)
    for k in range(0, x.shape[1], 32):
        total = total + x[:, k : k + 32].float() @ w[k : k + 32].float()
    return total.to(x.dtype)


def _linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.linear(x, w, b)


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def _sum_in_pieces(x: Tensor) -> Tensor:
    return torch.stack([piece.sum(-1) for piece in x.split(16, -1)]).sum(0)


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _powers(x: Tensor, exp: Function = torch.exp) -> Tensor:
    return exp(x - x.amax(-1, keepdim=True))


def _softmax_backward_sum(x: Tensor) -> Tensor:
    powers = _powers(x)
    return powers / powers.flip(-1).cumsum(-1)[..., -1:]


def _log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def _log_softmax_in_pieces(x: Tensor) -> Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - _sum_in_pieces(torch.exp(shifted))[..., None].log()


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def _rms_norm_in_pieces(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(_sum_in_pieces(x * x)[..., None] / x.shape[-1] + 1e-5) * w


def _layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


def _layer_norm_in_pieces(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    centred = x - _sum_in_pieces(x)[..., None] / x.shape[-1]
    return centred * torch.rsqrt(_sum_in_pieces(centred**2)[..., None] / x.shape[-1] + 1e-5) * w + b


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v


def _attention_of_parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Keys in two parts, each with its own maximum, as flash decoding has them."""
    parts = []
    for keys, values in zip(k.chunk(2, -2), v.chunk(2, -2), strict=True):
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        largest = scores.amax(-1, keepdim=True)
        powers = torch.exp(scores - largest)
        parts.append((largest, powers.sum(-1, keepdim=True), powers @ values))
    largest = torch.maximum(parts[0][0], parts[-1][0])
    shares = [torch.exp(m - largest) for m, *_ in parts]
    sums = torch.stack([share * s for share, (_, s, _) in zip(shares, parts, strict=True)])
    outputs = torch.stack([share * o for share, (*_, o) in zip(shares, parts, strict=True)])
    return outputs.sum(0) / sums.sum(0)


def _swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def _in_float32(function: Function) -> Function:
    """All in float32, and rounded once: as a fused kernel of half types."""

    def run(*x: Tensor) -> Tensor:
        return function(*(t.float() for t in x)).to(x[0].dtype)

    return run


def _half(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def _to_tf32(x: Tensor) -> Tensor:
    return ((x.detach().contiguous().view(torch.int32) + 4096) & -8192).view(torch.float32)


def _cut_to_tf32(x: Tensor) -> Tensor:
    return (x.detach().contiguous().view(torch.int32) & -8192).view(torch.float32)


def _with_factors(function: Function, change: Function) -> Function:
    """A function of which the first two operands are changed, as those of a product."""
    return lambda a, b, *others: function(change(a), change(b), *others)


def _three_products(x: Tensor, w: Tensor) -> Tensor:
    x0, w0 = _half(x), _half(w)
    return x0 @ w0 + (x0 @ _half(w - w0) + _half(x - x0) @ w0)


def _exp2(x: Tensor) -> Tensor:
    """exp as exp2 of a product that is rounded."""
    return torch.exp2(x * math.log2(math.e))


def _upward(function: Function) -> Function:
    """The results a unit of the last place higher."""

    def run(*x: Tensor) -> Tensor:
        y = function(*x)
        return torch.nextafter(y, torch.full_like(y, torch.inf))

    return run


def _inward(function: Function, bits: int = 2) -> Function:
    """The results with their last bits cut off."""
    return lambda *x: (function(*x).contiguous().view(torch.int32) & -(1 << bits)).view(torch.float32)


def _outward(function: Function, bits: int = 2) -> Function:
    """The results rounded away from zero, where their last bits are not zero."""
    return lambda *x: _cut_up(function(*x).contiguous().view(torch.int32), (1 << bits) - 1).view(torch.float32)


def _cut_up(x: Tensor, last: int) -> Tensor:
    return (x + last) & ~last


_ROWS, _PRODUCT = ((8, 192),), ((8, 192), (192, 12))
_NORM, _AFFINE, _HEADS = ((8, 192), (192,)), ((8, 192), (192,), (192,)), ((2, 8, 32), (2, 24, 32), (2, 24, 16))
_LINEAR, _TWO = ((8, 192), (12, 192), (12,)), ((8, 48), (8, 48))
_BF16 = torch.bfloat16

ORDER = {
    "product in pieces": Pair("order", _mm, None, _mm_in_pieces, _PRODUCT),
    "product from behind": Pair("order", _mm, None, lambda x, w: x.flip(1) @ w.flip(0), _PRODUCT),
    "sum in pieces": Pair("order", _sum, None, _sum_in_pieces, _ROWS),
    "softmax from behind": Pair("order", _softmax, None, _softmax_backward_sum, _ROWS),
    "log-softmax in pieces": Pair("order", _log_softmax, None, _log_softmax_in_pieces, _ROWS),
    "rms norm in pieces": Pair("order", _rms_norm, None, _rms_norm_in_pieces, _NORM),
    "layer norm in pieces": Pair("order", _layer_norm, None, _layer_norm_in_pieces, _AFFINE),
    "attention of parts": Pair("order", _attention, None, _attention_of_parts, _HEADS),
    "half product in pieces": Pair("order", _mm, _in_float32(_mm), _mm_in_pieces, _PRODUCT, _BF16),
    "loss by permuted rows": Pair(
        "order", lambda x: _log_softmax(x).mean(), None, lambda x: _log_softmax(x.flip(0)).mean(0).mean(), ((64, 32),)
    ),
}

ROUNDED = {
    "product stored in half": Pair("precision", _mm, None, lambda x, w: _half(x @ w), _PRODUCT),
    "probabilities in half": Pair(
        "precision", _attention, None,
        lambda q, k, v: _half(torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)) @ v, _HEADS,
    ),
    "scores in half": Pair(
        "precision", _attention, None,
        lambda q, k, v: torch.softmax(_half(q @ k.mT) / math.sqrt(q.shape[-1]), -1) @ v, _HEADS,
    ),
    "statistics in half": Pair(
        "precision", _rms_norm, None,
        lambda x, w: x * _half(torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)) * w, _NORM,
    ),
    "normalised in half": Pair(
        "precision", _rms_norm, None,
        lambda x, w: _half(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)) * w, _NORM,
    ),
    "logarithms in float16": Pair("precision", _log_softmax, None, lambda x: _log_softmax(x).half().float(), _ROWS),
    "eager norm of bfloat16": Pair("precision", _rms_norm, _in_float32(_rms_norm), _rms_norm, _NORM, _BF16),
    "eager swiglu of bfloat16": Pair("precision", _swiglu, _in_float32(_swiglu), _swiglu, _TWO, _BF16),
    "eager swiglu of float16": Pair("precision", _swiglu, _in_float32(_swiglu), _swiglu, _TWO, torch.float16),
    "bias after the rounding": Pair(
        "precision", lambda x, w, b: x @ w.mT + b, _in_float32(_linear), lambda x, w, b: x @ w.mT + b, _LINEAR, _BF16
    ),
}  # fmt: skip

FACTORS = {
    "TF32": Pair("precision", _mm, None, _with_factors(_mm, _to_tf32), _PRODUCT),
    "TF32, cut off": Pair("precision", _mm, None, _with_factors(_mm, _cut_to_tf32), _PRODUCT),
    "bfloat16": Pair("precision", _mm, None, _with_factors(_mm, _half), _PRODUCT),
    "float16": Pair("precision", _mm, None, _with_factors(_mm, lambda t: t.half().float()), _PRODUCT),
    "three of bfloat16": Pair("precision", _mm, None, _three_products, _PRODUCT),
    "TF32 with a bias": Pair("precision", _linear, None, _with_factors(_linear, _to_tf32), _LINEAR),
    "bfloat16 with a bias": Pair("precision", _linear, None, _with_factors(_linear, _half), _LINEAR),
    "TF32 of batches": Pair("precision", torch.bmm, None, _with_factors(torch.bmm, _to_tf32), ((3, 8, 64), (3, 64, 8))),
    "TF32 of scores": Pair("precision", _attention, None, _with_factors(_attention, _to_tf32), _HEADS, factor=4),
    "bfloat16 of scores": Pair("precision", _attention, None, _with_factors(_attention, _half), _HEADS, factor=4),
}

EXPONENTIALS = {
    "mean of powers": Pair(
        "precision", lambda x: torch.exp(x).mean(-1), None, lambda x: _exp2(x).mean(-1), ((64, 2),), factor=20
    ),
    "exp": Pair("precision", torch.exp, None, _exp2, _ROWS, factor=12),
    "sigmoid": Pair("precision", torch.sigmoid, None, lambda x: 1 / (1 + _exp2(-x)), _ROWS, factor=12),
    "silu": Pair("precision", F.silu, None, lambda x: x / (1 + _exp2(-x)), _ROWS, factor=12),
    "swiglu": Pair("precision", _swiglu, None, lambda x, y: x / (1 + _exp2(-x)) * y, _TWO, factor=12),
    "sum of powers": Pair(
        "precision", lambda x: torch.exp(x).sum(-1), None, lambda x: _exp2(x).sum(-1), ((8, 4),), factor=12
    ),
    "gated": Pair("precision", lambda x, y: torch.exp(x) * y, None, lambda x, y: _exp2(x) * y, _TWO, factor=12),
    "gaussian": Pair("precision", lambda x: torch.exp(-x * x), None, lambda x: _exp2(-x * x), _ROWS, factor=3),
    "decay": Pair(
        "precision", lambda x: torch.exp(-x.abs()), None, lambda x: _exp2(-x.abs()), _ROWS, factor=20
    ),
    "powers of rows": Pair(
        "precision", lambda x: torch.exp(x - x.amax(-1, keepdim=True)), None, lambda x: _powers(x, _exp2), _ROWS,
        factor=12,
    ),
}  # fmt: skip

LEANING = {
    "sum above": Pair("bias", _sum, None, _outward(_sum), _ROWS),
    "product above": Pair("bias", _mm, None, _outward(_mm), _PRODUCT),
    "product cut off": Pair("bias", _mm, None, _inward(_mm), _PRODUCT),
    "sum cut off": Pair("bias", _sum, None, _inward(_sum), _ROWS),
    "linear cut off": Pair("bias", _linear, None, _inward(_linear), _LINEAR),
    "softmax above": Pair("bias", _softmax, None, _upward(_softmax), _ROWS),
    "norm cut off": Pair("bias", _rms_norm, None, _inward(_rms_norm, 1), _NORM),
    "attention cut off": Pair("bias", _attention, None, _inward(_attention), _HEADS),
    "batches above": Pair("bias", torch.bmm, None, _outward(torch.bmm), ((3, 8, 64), (3, 64, 8))),
    "logarithms above": Pair("bias", _log_softmax, None, _upward(_log_softmax), _ROWS),
}

WRONG = {
    "a thousandth": Pair("wrong", _mm, None, lambda x, w: 1.001 * (x @ w), _PRODUCT),
    "the last column": Pair("wrong", _mm, None, lambda x, w: x[:, :-1] @ w[:-1], _PRODUCT),
    "no bias": Pair("wrong", _linear, None, lambda x, w, b: F.linear(x, w), _LINEAR),
    "another eps": Pair(
        "wrong", _rms_norm, None, lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3) * w, _NORM
    ),
    "eps outside": Pair(
        "wrong", _rms_norm, None, lambda x, w: x / ((x * x).mean(-1, keepdim=True).sqrt() + 1e-5) * w, _NORM,
        factor=0.01,
    ),
    "n - 1": Pair(
        "wrong", _layer_norm, None, lambda x, w, b: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) * w + b,
        _AFFINE,
    ),
    "tanh": Pair("wrong", F.gelu, None, lambda x: F.gelu(x, approximate="tanh"), _ROWS),
    "no scale": Pair("wrong", _attention, None, lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, _HEADS),
    "a key less": Pair(
        "wrong", _attention, None, lambda q, k, v: _attention(q, k[:, :-1], v[:, :-1]), _HEADS
    ),
    "in bfloat16, too": Pair("wrong", _mm, None, lambda x, w: (x @ w) * 1.02, _PRODUCT, _BF16),
}  # fmt: skip

KINDS = {
    "order": ORDER, "rounded": ROUNDED, "factors": FACTORS, "exponentials": EXPONENTIALS, "bias": LEANING,
    "wrong": WRONG,
}  # fmt: skip
PAIRS = {f"{kind}: {name}": pair for kind, table in KINDS.items() for name, pair in table.items()}
