"""Quantisation to integers: eight bits about zero, eight bits with a zero point, four bits in pairs; and products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .problem import E4M3, E5M2, Inputs, Problem, draw, in_blocks


def about_zero(x: Tensor, s: Tensor, low: int = -128, whole: Any = torch.round) -> Tensor:
    """int8 by a scale for each row that is given."""
    rounded: Tensor = whole(x.float() / s)
    return rounded.clamp(low, 127).to(torch.int8)


INT8 = Problem(
    "int8 by a scale for each row",
    about_zero,
    lambda dtype, seed: (draw(16, 64, seed=seed, scale=50.0, dtype=dtype), draw(16, 1, seed=seed + 1).abs() + 0.25),
    lambda q: q.float(),
    {"by the reciprocal": lambda x, s: torch.round(x.float() * (1.0 / s)).clamp(-128, 127).to(torch.int8)},
    {
        "wraps in place of saturating": lambda x, s: torch.round(x.float() / s).to(torch.int32).to(torch.int8),
        "-128 left out": lambda x, s: about_zero(x, s, -127),
        "cuts off in place of rounding": lambda x, s: about_zero(x, s, whole=torch.trunc),
        "multiplies by the scale": lambda x, s: about_zero(x, 1.0 / s),
        "scale of the row before": lambda x, s: about_zero(x, s.roll(1, 0)),
        "by way of bfloat16": lambda x, s: about_zero((x.float() / s).bfloat16().float(), torch.ones(())),
    },
)


def with_zero_point(x: Tensor, sign: int = 1, levels: int = 255, whole: Any = torch.round) -> tuple[Tensor, ...]:
    """uint8 with a scale and a zero point for each row."""
    x = x.float()
    low, high = x.amin(-1, keepdim=True).clamp(max=0.0), x.amax(-1, keepdim=True).clamp(min=0.0)
    s = (high - low).clamp(min=1e-6) / levels
    z = torch.round(-low / s).clamp(0, 255)
    return (whole(x / s) + sign * z).clamp(0, 255).to(torch.uint8), s, z.to(torch.uint8)


def clamped_before(x: Tensor) -> tuple[Tensor, ...]:
    _, s, z = with_zero_point(x)
    return (torch.round(x.float() / s).clamp(0, 255) + z.float()).clamp(0, 255).to(torch.uint8), s, z


ASYMMETRIC = Problem(
    "uint8 with a zero point for each row",
    with_zero_point,
    lambda dtype, seed: (draw(16, 64, seed=seed, dtype=dtype),),
    lambda q, s, z: (q.float() - z.float()) * s,
    {"by the reciprocal": lambda x: (
        (torch.round(x.float() * (1.0 / with_zero_point(x)[1])) + with_zero_point(x)[2].float())
        .clamp(0, 255).to(torch.uint8), *with_zero_point(x)[1:],
    )},
    {
        "zero point subtracted": lambda x: with_zero_point(x, -1),
        "256 levels": lambda x: with_zero_point(x, levels=256),
        "cuts off in place of rounding": lambda x: with_zero_point(x, whole=torch.trunc),
        "clamped before the zero point": clamped_before,
    },
)  # fmt: skip


def unpack(packed: Tensor, first: int = 0, offset: int = 8) -> Tensor:
    """Two numbers of four bits in every byte, the lower half first."""
    halves = (packed & 15, packed >> 4)
    pairs = torch.stack((halves[first], halves[1 - first]), -1).flatten(-2)
    return pairs.to(torch.int32) - offset


def of_four_bits(packed: Tensor, s: Tensor, first: int = 0, offset: int = 8, group: int = 32) -> Tensor:
    """Weights of four bits, with a scale for each 32 of a row."""
    numbers = in_blocks(unpack(packed, first, offset).float(), group)
    return (numbers * s.float().unsqueeze(-1)).flatten(-2).to(s.dtype)


def packed_weights(dtype: torch.dtype, seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    packed = torch.randint(0, 256, (8, 64), generator=generator, dtype=torch.uint8)
    return packed, (draw(8, 4, seed=seed, scale=0.1).abs() + 0.01).to(dtype)


def in_twos_complement(packed: Tensor, s: Tensor) -> Tensor:
    numbers = unpack(packed, offset=0)
    signed = torch.where(numbers > 7, numbers - 16, numbers)
    return (in_blocks(signed.float(), 32) * s.float().unsqueeze(-1)).flatten(-2).to(s.dtype)


INT4 = Problem(
    "weights of four bits, two in a byte",
    of_four_bits,
    packed_weights,
    lambda y: y.float(),
    {"by a repeated scale": lambda p, s: (unpack(p).float() * s.float().repeat_interleave(32, -1)).to(s.dtype)},
    {
        "upper half first": lambda p, s: of_four_bits(p, s, first=1),
        "zero at 7": lambda p, s: of_four_bits(p, s, offset=7),
        "read in two's complement": in_twos_complement,
        "scale of the group before": lambda p, s: of_four_bits(p, s.roll(1, -1)),
    },
)


def scaled_product(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """A product of e4m3 matrices with a scale for each row and column."""
    return torch._scaled_mm(a, b.t(), s, t.t(), out_dtype=torch.float32)


def products(dtype: torch.dtype, seed: int) -> Inputs:
    a, b = (draw(rows, 64, seed=seed + i).to(E4M3) for i, rows in enumerate((16, 16)))
    return a, b, draw(16, 1, seed=seed + 2).abs() + 0.1, draw(16, 1, seed=seed + 3).abs() + 0.1


def multiplied(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    return a.float() @ b.float().t() * s * t.t()


def in_halves(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    half = a.shape[1] // 2
    first, second = (multiplied(a[:, part], b[:, part], s, t) for part in (slice(half), slice(half, None)))
    return first + second


def through_bfloat16(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """Partial sums of 16 products, stored in bfloat16."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.bfloat16)
    for k in range(0, a.shape[1], 16):
        total = total + (a[:, k : k + 16].float() @ b[:, k : k + 16].float().t()).bfloat16()
    return total.float() * s * t.t()


PRODUCT = Problem(
    "product of e4m3 matrices with scales of rows and columns",
    scaled_product,
    products,
    lambda y: y,
    {
        "scaled factors": lambda a, b, s, t: (a.float() * s) @ (b.float() * t).t(),
        "scaled product": multiplied,
        "in two halves": in_halves,
    },
    {
        "scales exchanged": lambda a, b, s, t: multiplied(a, b, t, s),
        "one scale divides": lambda a, b, s, t: multiplied(a, b, s, 1.0 / t),
        "one scale for all rows": lambda a, b, s, t: multiplied(a, b, s[:1], t),
        "partial sums in bfloat16": through_bfloat16,
        "factors by way of e5m2": lambda a, b, s, t: multiplied(a.float().to(E5M2), b, s, t),
        "the last 16 products left out": lambda a, b, s, t: multiplied(a[:, :48], b[:, :48], s, t),
    },
    (torch.float32,),
)

PROBLEMS = (INT8, ASYMMETRIC, INT4, PRODUCT)
