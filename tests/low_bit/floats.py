"""Quantisation to eight-bit floats: per row, with a given scale, per block, after a norm; and back."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .problem import E4M3, E5M2, E8M0, Inputs, Problem, draw, in_blocks, truncated

FNUZ = torch.float8_e4m3fnuz


def row_scale(x: Tensor, largest: float = 448.0) -> Tensor:
    return x.abs().amax(-1, keepdim=True).clamp(min=1e-10) / largest


def by_row(x: Tensor, scale: Any = row_scale, cast: Any = lambda y: y.to(E4M3)) -> tuple[Tensor, Tensor]:
    """e4m3 numbers and a scale for each row."""
    x = x.float()
    s = scale(x)
    return cast((x / s).clamp(-448.0, 448.0)), s


def by_reciprocal(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.float()
    s = row_scale(x)
    return (x * (1.0 / s)).clamp(-448.0, 448.0).to(E4M3), s


def by_factor(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.float()
    largest = x.abs().amax(-1, keepdim=True).clamp(min=1e-10)
    return (x * (448.0 / largest)).clamp(-448.0, 448.0).to(E4M3), largest * (1.0 / 448.0)


def exchanged(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.float()
    s = row_scale(x)
    return (x * s).clamp(-448.0, 448.0).to(E4M3), s


def off_by_two(x: Tensor) -> tuple[Tensor, Tensor]:
    q, s = by_row(x, lambda x: row_scale(x) * 2)
    return q, s / 2


def rows_back(q: Tensor, s: Tensor) -> Tensor:
    return q.float() * s


BY_ROW = Problem(
    "quantise rows to e4m3",
    by_row,
    lambda dtype, seed: (draw(16, 64, seed=seed, dtype=dtype),),
    rows_back,
    {"by the reciprocal of the scale": by_reciprocal, "by 448 over the largest": by_factor},
    {
        "multiplies by the scale": exchanged,
        "scale off by two, and handed over right": off_by_two,
        "cuts off in place of rounding": lambda x: by_row(x, cast=lambda y: truncated(y, E4M3)),
        "largest of columns": lambda x: by_row(x, lambda x: x.abs().amax(-2, keepdim=True).clamp(min=1e-10) / 448.0),
        "largest of the tensor": lambda x: by_row(x, lambda x: row_scale(x).amax().expand(x.shape[0], 1).clone()),
        "largest without the magnitude": lambda x: by_row(
            x, lambda x: x.amax(-1, keepdim=True).clamp(min=1e-10) / 448.0
        ),
        "by way of e5m2": lambda x: by_row(x, cast=lambda y: y.to(E5M2).to(E4M3)),
        "by way of bfloat16": lambda x: by_row(x, cast=lambda y: y.bfloat16().to(E4M3)),
        "240, the largest of fnuz": lambda x: by_row(x, functools.partial(row_scale, largest=240.0)),
        "scale rounded to bfloat16": lambda x: by_row(x, lambda x: row_scale(x).bfloat16().float()),
        "scale rounded up to a power of two": lambda x: by_row(x, lambda x: row_scale(x).log2().ceil().exp2()),
        "small numbers flushed to zero": lambda x: by_row(x, cast=lambda y: (y * (y.abs() >= 2.0**-6)).to(E4M3)),
        "the last column left as it was before": lambda x: (
            by_row(x)[0].float().index_fill(-1, torch.tensor([63]), 0.0).to(E4M3),
            by_row(x)[1],
        ),
    },
)


def static(x: Tensor, s: Tensor, largest: float = 240.0, dtype: torch.dtype = FNUZ) -> Tensor:
    """Numbers of fnuz by a scale that is given; what is beyond it is the largest."""
    return (x.float() / s).clamp(-largest, largest).to(dtype)


STATIC = Problem(
    "quantise to e4m3fnuz by a given scale",
    static,
    lambda dtype, seed: (draw(16, 64, seed=seed, scale=100.0, dtype=dtype), torch.tensor(0.75)),
    lambda q: q.float() * 0.75,
    {"by the reciprocal": lambda x, s: (x.float() * (1.0 / s)).clamp(-240.0, 240.0).to(FNUZ)},
    {
        "does not saturate": lambda x, s: (x.float() / s).to(FNUZ),
        "saturates at 224": lambda x, s: static(x, s, 224.0),
        "NaN becomes zero": lambda x, s: torch.nan_to_num(static(x, s).float()).to(FNUZ),
        "multiplies by the scale": lambda x, s: static(x, 1.0 / s),
        "cuts off in place of rounding": lambda x, s: truncated((x.float() / s).clamp(-240.0, 240.0), FNUZ),
        "the bits of e4m3fn": lambda x, s: static(x, s, 448.0, E4M3).view(torch.uint8).view(FNUZ),
    },
)


def cast_alone(x: Tensor) -> Tensor:
    return x.to(E5M2)


def ties_away(x: Tensor) -> Tensor:
    """Rounds ties away from zero."""
    nearest, wide = x.to(E5M2), x.float()
    other = (nearest.view(torch.uint8) + 1).view(E5M2)
    tie = (wide.abs() - nearest.float().abs() == other.float().abs() - wide.abs()) & wide.isfinite()
    return torch.where(tie, other.view(torch.uint8), nearest.view(torch.uint8)).view(E5M2)


CAST = Problem(
    "cast to e5m2",
    cast_alone,
    lambda dtype, seed: (draw(16, 64, seed=seed, dtype=dtype),),
    lambda q: q.float(),
    {"by way of float32": lambda x: x.float().to(E5M2)},
    {
        "rounds ties away from zero": ties_away,
        "cuts off in place of rounding": lambda x: truncated(x, E5M2),
        "infinity becomes the largest number": lambda x: x.clamp(-57344.0, 57344.0).to(E5M2),
        "by way of e4m3": lambda x: x.to(E4M3).float().to(E5M2),
        "loses the sign of small numbers": lambda x: torch.where(x.abs() < 2.0**-14, x.abs(), x).to(E5M2),
    },
)


def mx_blocks(x: Tensor, block: int = 32, bias: int = 8, whole: Any = torch.floor) -> tuple[Tensor, Tensor]:
    """e4m3 numbers and a power of two for each block of 32, as OCP MX has them."""
    y = in_blocks(x.float(), block)
    largest = y.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    s = torch.exp2(whole(torch.log2(largest)) - bias)
    return (y / s).clamp(-448.0, 448.0).to(E4M3).flatten(-2), s.squeeze(-1).to(E8M0)


def by_exponent(x: Tensor) -> tuple[Tensor, Tensor]:
    y = in_blocks(x.float(), 32)
    largest = y.abs().amax(-1, keepdim=True).clamp(min=2.0**-100)
    exponent = torch.floor(torch.log2(largest)) - 8
    return (y * torch.exp2(-exponent)).clamp(-448.0, 448.0).to(E4M3).flatten(-2), exponent.exp2().squeeze(-1).to(E8M0)


def wide_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    q, s = mx_blocks(x, 64)
    return q, s.view(torch.uint8).repeat_interleave(2, -1).view(E8M0)


def next_block(x: Tensor) -> tuple[Tensor, Tensor]:
    q, s = mx_blocks(x)
    return q, s.view(torch.uint8).roll(1, -1).view(E8M0)


MX = Problem(
    "quantise blocks of 32 to e4m3 with e8m0 scales",
    mx_blocks,
    lambda dtype, seed: (draw(8, 128, seed=seed, dtype=dtype),),
    lambda q, s: (in_blocks(q.float(), 32) * s.float().unsqueeze(-1)).flatten(-2),
    {
        "by the reciprocal of the scale": by_exponent,
    },
    {
        "blocks of 64": wide_blocks,
        "scale rounded up": lambda x: mx_blocks(x, whole=torch.ceil),
        "exponent off by one": lambda x: mx_blocks(x, bias=7),
        "scale of the next block": next_block,
        "scale of e5m2": lambda x: mx_blocks(x, bias=15),
        "magnitude left out": lambda x: (mx_blocks(x)[0], mx_blocks(x.clamp(min=0.0))[1]),
    },
)


def blocks_back(q: Tensor, s: Tensor, block: int = 128) -> Tensor:
    """Numbers of blocks of 128, each with its scale."""
    return (in_blocks(q.float(), block) * s.unsqueeze(-1)).flatten(-2)


def blocks(dtype: torch.dtype, seed: int) -> Inputs:
    q = draw(4, 512, seed=seed, scale=100.0).to(E4M3)
    return q, draw(4, 4, seed=seed + 1, scale=0.1).abs().add(0.01).to(dtype)


DEQUANTISE = Problem(
    "numbers of blocks of 128, from e4m3",
    lambda q, s: blocks_back(q, s.float()).to(s.dtype),
    blocks,
    lambda y: y.float(),
    {"by a repeated scale": lambda q, s: (q.float() * s.float().repeat_interleave(128, -1)).to(s.dtype)},
    {
        "divides by the scale": lambda q, s: blocks_back(q, 1.0 / s.float()).to(s.dtype),
        "scale of the block before": lambda q, s: blocks_back(q, s.float().roll(1, -1)).to(s.dtype),
        "scales of other rows": lambda q, s: blocks_back(q, s.float().flip(0)).to(s.dtype),
        "the bits read as fnuz": lambda q, s: blocks_back(q.view(torch.uint8).view(FNUZ), s.float()).to(s.dtype),
        "the bits read as e5m2": lambda q, s: blocks_back(q.view(torch.uint8).view(E5M2), s.float()).to(s.dtype),
        "result rounded to eight bits": lambda q, s: blocks_back(q, s.float()).to(E4M3).to(s.dtype),
    },
)


def normed(x: Tensor, w: Tensor, eps: float = 1e-5) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w.float()


def norm_and_rows(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """An RMS norm whose result is stored in e4m3, with a scale for each row."""
    return by_row(normed(x, w))


NORM = Problem(
    "RMS norm, then rows of e4m3",
    norm_and_rows,
    lambda dtype, seed: (draw(16, 64, seed=seed, dtype=dtype), draw(64, seed=seed + 1, scale=1.0, dtype=dtype)),
    rows_back,
    {"by the reciprocal of the scale": lambda x, w: by_reciprocal(normed(x, w))},
    {
        "scale of what was normed": lambda x, w: by_row(normed(x, w), lambda y: row_scale(x.float())),
        "scale before the weight": lambda x, w: by_row(normed(x, w), lambda y: row_scale(normed(x, torch.ones(64)))),
        "eps left out": lambda x, w: by_row(normed(x, w, 0.0)),
        "mean without the magnitude": lambda x, w: by_row(
            x.float() * torch.rsqrt(x.float().mean(-1, keepdim=True).square() + 1e-5) * w.float()
        ),
    },
)

PROBLEMS = (BY_ROW, STATIC, CAST, MX, DEQUANTISE, NORM)
