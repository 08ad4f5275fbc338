"""Numbers of four bits, e2m1, two in a byte: blocks of 16 with a scale in e4m3 each, and one for all (NVFP4)."""

from __future__ import annotations

import torch
from torch import Tensor

from .problem import E4M3, Inputs, Problem, draw, in_blocks

#: The magnitudes of e2m1, by their codes.
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def codes_of(y: Tensor, to_even: bool = True) -> Tensor:
    """The codes of the nearest numbers of e2m1, ties to even; what is beyond 6 is 6."""
    size = y.abs()
    code = torch.zeros(y.shape, dtype=torch.uint8)
    for i in range(7):
        middle = (MAGNITUDES[i] + MAGNITUDES[i + 1]) / 2
        code = code + (size > middle if to_even and i % 2 == 0 else size >= middle).to(torch.uint8)
    return code | (torch.where(y < 0, 8, 0)).to(torch.uint8)


def packed(codes: Tensor, first: int = 0) -> Tensor:
    return codes[..., first::2] | (codes[..., 1 - first :: 2] << 4)


def scales_of(x: Tensor, s: Tensor, block: int = 16, largest: float = 6.0) -> tuple[Tensor, Tensor]:
    blocks = in_blocks(x.float(), block)
    return blocks, (blocks.abs().amax(-1) / (largest * s)).clamp(max=448.0).to(E4M3)


def quantised(x: Tensor, s: Tensor, first: int = 0, largest: float = 6.0) -> tuple[Tensor, Tensor]:
    """Codes of e2m1 in pairs, and a scale in e4m3 for each 16; `s` is the scale of the whole tensor."""
    blocks, scales = scales_of(x, s, largest=largest)
    whole = (scales.float() * s).unsqueeze(-1)
    y = torch.where(whole > 0, blocks / whole, 0.0).flatten(-2)
    return packed(codes_of(y), first), scales


def by_scale_before(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Divides by the scale that was not rounded to e4m3."""
    blocks, scales = scales_of(x, s)
    return packed(codes_of((blocks * 6 / blocks.abs().amax(-1, keepdim=True)).flatten(-2))), scales


def of_wide_blocks(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    blocks, scales = scales_of(x, s, 32)
    y = (blocks / (scales.float() * s).unsqueeze(-1)).flatten(-2)
    return packed(codes_of(y)), scales.view(torch.uint8).repeat_interleave(2, -1).view(E4M3)


def by_reciprocal(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    blocks, scales = scales_of(x, s)
    whole = (scales.float() * s).unsqueeze(-1)
    y = torch.where(whole > 0, blocks * (1.0 / whole), 0.0).flatten(-2)
    return packed(codes_of(y)), scales


def numbers_of(pairs: Tensor, table: tuple[float, ...] = MAGNITUDES, first: int = 0) -> Tensor:
    values = torch.tensor([*table, *(-x for x in table)])
    halves = (pairs & 15, pairs >> 4)
    return values[torch.stack((halves[first], halves[1 - first]), -1).flatten(-2).long()]


def restored(pairs: Tensor, scales: Tensor, s: Tensor | float = 0.01) -> Tensor:
    """The numbers of pairs of codes, with both scales."""
    return (in_blocks(numbers_of(pairs), 16) * (scales.float() * s).unsqueeze(-1)).flatten(-2)


def tensors(dtype: torch.dtype, seed: int) -> Inputs:
    return draw(8, 64, seed=seed, dtype=dtype), torch.tensor(0.01)


def pairs(dtype: torch.dtype, seed: int) -> Inputs:
    codes = torch.randint(0, 256, (8, 32), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return codes, draw(8, 4, seed=seed, scale=100.0).abs().to(E4M3), torch.tensor(0.01)


CAST = Problem(
    "cast to pairs of e2m1",
    lambda x: packed(codes_of(x)),
    lambda dtype, seed: (draw(8, 64, seed=seed, dtype=dtype),),
    numbers_of,
    {"column by column": lambda x: packed(torch.stack([codes_of(part) for part in x.unbind(-1)], -1))},
    {
        "rounds ties away from zero": lambda x: packed(codes_of(x, to_even=False)),
        "cuts off in place of rounding": lambda x: packed(codes_of(x.abs() - 0.25) | (x < 0).to(torch.uint8) * 8),
        "loses the sign of what becomes zero": lambda x: packed(codes_of(torch.where(x.abs() <= 0.25, 0.0, x))),
    },
)
QUANTISE = Problem(
    "quantise to pairs of e2m1 with scales in e4m3",
    quantised,
    tensors,
    restored,
    {"by the reciprocal of the scale": by_reciprocal},
    {
        "upper half first": lambda x, s: quantised(x, s, first=1),
        "4 for 6, the largest number": lambda x, s: quantised(x, s, largest=4.0),
        "scale of all left out": lambda x, s: quantised(x, torch.ones(())),
        "by the scale before its cast": by_scale_before,
        "blocks of 32": of_wide_blocks,
    },
)
DEQUANTISE = Problem(
    "numbers of pairs of e2m1",
    restored,
    pairs,
    lambda y: y,
    {"scales one after the other": lambda p, t, s: (
        in_blocks(numbers_of(p), 16) * t.float().unsqueeze(-1) * s
    ).flatten(-2)},
    {
        "upper half first": lambda p, t, s: restored((p >> 4) | (p << 4), t, s),
        "codes read as whole numbers": lambda p, t, s: (
            numbers_of(p, tuple(map(float, range(8)))).unflatten(-1, (-1, 16)) * (t.float() * s).unsqueeze(-1)
        ).flatten(-2),
        "scale of all divides": lambda p, t, s: restored(p, t, 1.0 / s),
        "scale of the block before": lambda p, t, s: restored(p, t.view(torch.uint8).roll(1, -1).view(E4M3), s),
        "sign left out": lambda p, t, s: restored(p & 0x77, t, s),
    },
    (torch.float32,),
)  # fmt: skip

PROBLEMS = (CAST, QUANTISE, DEQUANTISE)
