"""What stands around products: norms, gates, quantised epilogues."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .kind import Kind, beside, mistakes, normal, normals

E4M3 = torch.float8_e4m3fn


# -------------------------------- norms and gates


def added_norm(
    x: Tensor, residual: Tensor, w: Tensor, *, eps: float = 1e-6, adds: bool = True, one: float = 0.0
) -> tuple[Tensor, Tensor]:
    """RMS norm of a sum with the residual, which is an output, too."""
    y = x + residual if adds else x
    return y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * (w + one), y


def added_norm_by_length(x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = residual + x
    total = (y * y).sum(-1, keepdim=True)
    return w * (y / torch.sqrt(total / y.shape[-1] + 1e-6)), y


def gated_norm(
    x: Tensor, gate: Tensor, w: Tensor, *, eps: float = 1e-5, before: bool = False, acts: bool = True
) -> Tensor:
    """Mamba 2's norm: the gate stands after it."""
    g = F.silu(gate) if acts else gate
    y = x * g if before else x
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * w
    return y if before else y * g


def gated_norm_at_once(x: Tensor, gate: Tensor, w: Tensor) -> Tensor:
    scale = 1 / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-5)
    return x * (w * gate / (1 + torch.exp(-gate))) * scale


def group_norm(x: Tensor, w: Tensor, b: Tensor, *, groups: int = 2, acts: bool = True, eps: float = 1e-5) -> Tensor:
    y = F.group_norm(x, groups, w, b, eps)
    return F.silu(y) if acts else y


def group_norm_folded(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    parts = x.unflatten(1, (2, -1)).flatten(2)
    apart = parts - parts.mean(-1, keepdim=True)
    scale = torch.rsqrt(apart.square().mean(-1, keepdim=True) + 1e-5)
    y = (apart * scale).reshape(x.shape) * w[:, None] + b[:, None]
    return y * torch.sigmoid(y)


def gated(
    x: Tensor, up: Tensor, down: Tensor, *, turned: bool = False, most: float = 7.0, slope: float = 1.702
) -> Tensor:
    """The gated unit of gpt-oss: clamped, beside a part plus 1."""
    gate, other = (x @ up).chunk(2, -1)
    gate, other = (other, gate) if turned else (gate, other)
    gate, other = gate.clamp(max=most), other.clamp(-most, most)
    return gate * torch.sigmoid(slope * gate) * (other + 1) @ down


def gated_by_halves(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    n = down.shape[0]
    gate = torch.clamp_max(x @ up[:, :n], 7.0)
    other = torch.clamp(x @ up[:, n:], -7.0, 7.0)
    hidden = gate / (1 + torch.exp(-1.702 * gate))
    return (hidden * other + hidden) @ down


def hadamard(x: Tensor, *, scale: float = 8**-0.5, steps: int = 3, sign: float = -1.0) -> Tensor:
    """The transform of Walsh and Hadamard, by butterflies."""
    for i in range(steps):
        a, b = x.unflatten(-1, (-1, 2, 2**i)).unbind(-2)
        x = torch.stack([a + b, a + sign * b], -2).flatten(-3)
    return x * scale


def hadamard_by_matrix(x: Tensor) -> Tensor:
    bits = torch.tensor([[bin(i & j).count("1") % 2 for j in range(8)] for i in range(8)])
    return x @ ((1 - 2 * bits).to(x.dtype) * 8**-0.5)


# -------------------------------- quantised


def norm_to_bytes(
    x: Tensor, w: Tensor, *, most: float = 127.0, eps: float = 1e-6, whole: bool = False
) -> tuple[Tensor, Tensor]:
    """RMS norm, then int8 with a scale for each row."""
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w
    scale = (y.abs().amax() if whole else y.abs().amax(-1, keepdim=True)).expand(len(x), 1) / most
    return torch.round(y / scale).clamp(-128, 127).to(torch.int8), scale


def norm_to_bytes_fused(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = w * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6))
    most = torch.maximum(y.amax(-1, keepdim=True), -y.amin(-1, keepdim=True))
    return torch.round(y * (127 / most)).clamp(-128, 127).to(torch.int8), most / 127


def gemm_of_bytes(
    a: Tensor,
    b: Tensor,
    row: Tensor,
    column: Tensor,
    bias: Tensor,
    *,
    few: int = 0,
    turned: bool = False,
    biased: bool = True,
) -> Tensor:
    """int8 times int8 in int32, then scales of rows and columns, and a bias."""
    total = (a[:, : a.shape[1] - few].to(torch.int32) @ b[: b.shape[0] - few].to(torch.int32)).to(row.dtype)
    row = row.flip(0) if turned else row
    return total * row[:, None] * column + (bias if biased else 0.0)


def gemm_of_bytes_in_float(a: Tensor, b: Tensor, row: Tensor, column: Tensor, bias: Tensor) -> Tensor:
    return bias + torch.outer(row, column) * (a.to(row.dtype)[:, :, None] * b.to(row.dtype)).sum(1)


def _bytes(dtype: torch.dtype) -> tuple[Tensor, ...]:
    a, b = ((40 * normal(*shape, seed=7)).round().clamp(-127, 127).to(torch.int8) for shape in ((4, 8), (8, 5)))
    return (a, b, *normals((4,), (5,), (5,))(dtype))


def groups_of_bytes(
    x: Tensor, codes: Tensor, scales: Tensor, *, zero: int = 8, turned: bool = False, size: int = 4
) -> Tensor:
    """Weights of whole numbers with a scale for each group of 4 rows."""
    scales = scales.flip(0) if turned else scales
    weight = (codes.to(x.dtype) - zero) * scales.repeat_interleave(size, 0)[: len(codes)]
    return x @ weight


def groups_of_bytes_by_parts(x: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    parts = zip(x.split(4, 1), codes.split(4), scales, strict=True)
    return torch.stack([part @ (own.to(x.dtype) - 8) * scale for part, own, scale in parts]).sum(0)


def blocks_of_eight(
    a: Tensor, b: Tensor, rows: Tensor, columns: Tensor, *, turned: bool = False, once: bool = False, few: int = 0
) -> Tensor:
    """e4m3 times e4m3 with a scale for each block of 4 of the sum, on both sides."""
    if a.shape[1] != 4 * rows.shape[1]:
        raise ValueError(f"rows has {rows.shape[1]} blocks, need {a.shape[1]} / 4")
    total = torch.zeros(a.shape[0], b.shape[1], dtype=rows.dtype)
    for i in range(rows.shape[1] - few):
        own = a[:, 4 * i : 4 * i + 4].to(rows.dtype) @ b[4 * i : 4 * i + 4].to(rows.dtype)
        j = rows.shape[1] - 1 - i if turned else i
        total = total + own * rows[:, j, None] * (1.0 if once else columns[j])
    return total


def blocks_of_eight_scaled(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    left, right = rows.repeat_interleave(4, 1), columns.repeat_interleave(4, 0)
    return ((a.to(rows.dtype) * left)[:, :, None] * (b.to(rows.dtype) * right)).sum(1)


def _eights(dtype: torch.dtype) -> tuple[Tensor, ...]:
    return (normal(3, 8, seed=1).to(E4M3), normal(8, 5, seed=2).to(E4M3), *normals((3, 2), (2, 5))(dtype))


def cache_of_bytes(
    q: Tensor,
    codes: Tensor,
    scales: Tensor,
    v: Tensor,
    *,
    scale: float = 0.25,
    whole: bool = False,
    signed: bool = True,
) -> Tensor:
    """Attention to keys in int8, with a scale for each word."""
    k = codes.to(q.dtype) if signed else codes.view(torch.uint8).to(q.dtype)
    k = k * (scales.mean() if whole else scales[:, None])
    return torch.softmax(q @ k.T * scale, -1) @ v


def cache_of_bytes_after(q: Tensor, codes: Tensor, scales: Tensor, v: Tensor) -> Tensor:
    scores = (q @ codes.to(q.dtype).T) * (scales * 0.25)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers @ v / powers.sum(-1, keepdim=True)


def _cache(dtype: torch.dtype) -> tuple[Tensor, ...]:
    q, scales, v = normals((2, 6), (5,), (5, 4))(dtype)
    return q, (40 * normal(5, 6, seed=8)).round().clamp(-127, 127).to(torch.int8), (scales / 32).abs(), v


KINDS = (
    Kind("norm of a sum", added_norm, normals((4, 8), (4, 8), (8,)), {"by length": added_norm_by_length},
         mistakes(added_norm, eps=1e-2, adds=False, one=1.0)),
    Kind("gated norm", gated_norm, normals((4, 8), (4, 8), (8,)), {"at once": gated_norm_at_once},
         mistakes(gated_norm, eps=1e-2, before=True, acts=False)),
    Kind("group norm and SiLU", group_norm, normals((2, 4, 6), (4,), (4,)), {"folded": group_norm_folded},
         mistakes(group_norm, groups=1, acts=False, eps=1e-2)),
    Kind("clamped gated unit", gated, normals((4, 6), (6, 10), (5, 3)), {"by halves": gated_by_halves},
         mistakes(gated, turned=True, most=1.0, slope=1.0)),
    Kind("Hadamard transform", hadamard_by_matrix, normals((4, 8)), {"by butterflies": hadamard},
         mistakes(hadamard, scale=1 / 8, steps=2, sign=1.0)),
    Kind("norm to int8", norm_to_bytes, normals((4, 8), (8,)), {"fused": norm_to_bytes_fused},
         mistakes(norm_to_bytes, most=128.0, eps=1e-1, whole=True)),
    Kind("product of int8", gemm_of_bytes, _bytes, {"in floating numbers": gemm_of_bytes_in_float},
         mistakes(gemm_of_bytes, few=1, turned=True, biased=False)),
    Kind("weights in groups", groups_of_bytes,
         beside(normals((3, 8)), torch.arange(40).reshape(8, 5) % 16, normal(2, 5, seed=3)),
         {"by parts": groups_of_bytes_by_parts}, mistakes(groups_of_bytes, zero=7, turned=True, size=5),
         (torch.float32,)),
    Kind("product of blocks of e4m3", blocks_of_eight, _eights, {"scaled before": blocks_of_eight_scaled},
         mistakes(blocks_of_eight, turned=True, once=True, few=1), (torch.float32,)),
    Kind("keys in int8", cache_of_bytes, _cache, {"scaled after": cache_of_bytes_after},
         mistakes(cache_of_bytes, scale=0.5, whole=True, signed=False)),
)  # fmt: skip
