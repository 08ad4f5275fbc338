"""Products of matrices of four bits by torch.nn.functional.scaled_mm: right kernels accepted, mistakes rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opassay
from opassay.reference.formats import EVERY_FORMAT, bits_to_float64

#: e4m3 scales for 16 numbers, alone and below a float32 one for the matrix; e8m0 scales for 32.
RECIPES = ("nvfp4", "nvfp4 of one level", "mxfp4")
QUESTIONS = ["FWD:given", "FWD:seeds", "DATA:integers", "LAYOUT:strides", "SIZE:sizes"]
_RECIPE, _SWIZZLE = functional.ScalingType, functional.SwizzleType
_ROWS, _COLUMNS, _LENGTH = 5, 7, 96
_NUMBERS = bits_to_float64(EVERY_FORMAT["float4_e2m1fn"], np.arange(16))
_PAIRS = torch.float4_e2m1fn_x2


def _spec_of(recipe: str) -> Callable[..., Tensor]:
    kinds = [_RECIPE.BlockWise1x32 if recipe == "mxfp4" else _RECIPE.BlockWise1x16]
    tiles = [_SWIZZLE.SWIZZLE_32_4_4]
    if recipe == "nvfp4":
        kinds, tiles = [*kinds, _RECIPE.TensorWise], [*tiles, _SWIZZLE.NO_SWIZZLE]

    def spec(a: Tensor, b: Tensor, s: Tensor, t: Tensor, *wholes: Tensor) -> Tensor:
        left, right = [s, *wholes[:1]], [t, *wholes[1:]]
        return functional.scaled_mm(a, b.t(), left, kinds, right, kinds, tiles, tiles, output_dtype=torch.float32)

    return spec


def _by_shapes(a: Tensor, b: Tensor, s: Tensor, t: Tensor, *wholes: Tensor) -> Tensor:
    product: Tensor = torch._scaled_mm(a, b.t(), s, t, out_dtype=torch.float32)
    return product * (wholes[0] * wholes[1]) if wholes else product


def _numbers(pairs: Tensor, first: int = 0) -> Tensor:
    """By arithmetic on exponent and mantissa, and not by a table."""
    codes = pairs.view(torch.uint8)
    halves = (codes & 15, codes >> 4)
    code = torch.stack((halves[first], halves[1 - first]), -1).flatten(-2).int()
    exponent, digit = code >> 1 & 3, (code & 1).float()
    size = torch.where(exponent == 0, digit / 2, (1 + digit / 2) * torch.exp2(exponent - 1.0))
    return torch.where(code > 7, -size, size)


def _scales(tiles: Tensor, rows: int, blocks: int) -> Tensor:
    """Tiles of 128 rows and 4 columns as a matrix, by moving axes."""
    high, wide = -(-rows // 128), -(-blocks // 4)
    whole = tiles.float().reshape(high, wide, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return whole.reshape(high * 128, wide * 4)[:rows, :blocks]


def _kernel(
    a: Tensor, b: Tensor, s: Tensor, t: Tensor, *wholes: Tensor, first: int = 0, shift: int = 0, factor: float = 1.0
) -> Tensor:
    x, y = _numbers(a, first), _numbers(b)
    size = 32 if s.dtype == torch.float8_e8m0fnu else 16
    scales = [_scales(tiles, len(z), z.shape[1] // size) for tiles, z in ((s, x), (t, y))]
    scales[0] = scales[0].roll(shift, 1) * factor
    left, right = (
        (z.unflatten(1, (-1, size)) * q.unsqueeze(-1)).flatten(1) for z, q in zip((x, y), scales, strict=True)
    )
    product: Tensor = (left[:, None] * right).sum(-1)
    return product * wholes[0] * wholes[1] if wholes else product


def _block_by_block(a: Tensor, b: Tensor, s: Tensor, t: Tensor, *wholes: Tensor) -> Tensor:
    """The products of blocks are scaled, and the scales of both levels before."""
    x, y = _numbers(a), _numbers(b)
    size = 32 if s.dtype == torch.float8_e8m0fnu else 16
    p, q = (_scales(tiles, len(z), z.shape[1] // size) for tiles, z in ((s, x), (t, y)))
    p, q = (p * wholes[0], q * wholes[1]) if wholes else (p, q)
    blocks = (x.unflatten(1, (-1, size))[:, None] * y.unflatten(1, (-1, size))).sum(-1)
    product: Tensor = (blocks * p[:, None] * q).flip(-1).sum(-1)
    return product


def _exchanged(a: Tensor, b: Tensor, s: Tensor, t: Tensor, *wholes: Tensor) -> Tensor:
    return _kernel(a, b, t, s, *wholes)


def _without_wholes(a: Tensor, b: Tensor, s: Tensor, t: Tensor, *wholes: Tensor) -> Tensor:
    return _kernel(a, b, s, t)


def _of_rows(a: Tensor, b: Tensor, s: Tensor, t: Tensor, *wholes: Tensor) -> Tensor:
    """Reads tiles as if scales stood row by row."""
    blocks = -(-a.shape[1] * 2 // (32 if s.dtype == torch.float8_e8m0fnu else 16) // 4) * 4
    return _kernel(a, b, _scales(s.float(), 128, blocks).reshape(-1).to(s.dtype), t, *wholes)


def _with(**changes: Any) -> Callable[..., Tensor]:
    return lambda *tensors: _kernel(*tensors, **changes)


MISTAKES: dict[str, Callable[..., Tensor]] = {
    "scales exchanged": _exchanged,
    "off by a power of two": _with(factor=2.0),
    "halves of a byte exchanged": _with(first=1),
    "scale of the block before": _with(shift=1),
    "scales row by row": _of_rows,
    "scale of the matrix left out": _without_wholes,
}


def _draw(recipe: str, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(0, 256, (n, _LENGTH // 2), generator=generator, dtype=torch.uint8) for n in (_ROWS, _COLUMNS))
    blocks = _LENGTH // (32 if recipe == "mxfp4" else 16)
    count = 128 * -(-blocks // 4) * 4
    s, t = (torch.rand(count, generator=generator) + 0.25 for _ in "st")
    if recipe == "mxfp4":
        s, t = (torch.exp2((8 * x).floor() - 5) for x in (s, t))
    few = torch.float8_e8m0fnu if recipe == "mxfp4" else torch.float8_e4m3fn
    wholes = (torch.tensor(0.37), torch.tensor(1.75)) if recipe == "nvfp4" else ()
    return a.view(_PAIRS), b.view(_PAIRS), s.to(few), t.to(few), *wholes


def _inputs(recipe: str) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda seed: _draw(recipe, seed)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kernel", [_kernel, _block_by_block])
def test_right_products_are_accepted(kernel: Callable[..., Tensor], recipe: str) -> None:
    for spec in (_spec_of(recipe), _by_shapes):
        judgement = opassay.judge(kernel, spec, _inputs(recipe), questions=QUESTIONS, seed=0)
        assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.one_fast_in(18)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_rejected(name: str, recipe: str) -> None:
    if name == "scale of the matrix left out" and recipe != "nvfp4":
        recipe = "nvfp4"
    judgement = opassay.judge(MISTAKES[name], _spec_of(recipe), _inputs(recipe), questions=["FWD:given"], seed=0)
    assert judgement.verdict == "rejected", str(judgement)


def test_what_is_exact_in_every_order_has_one_result() -> None:
    """Few products, whose sums float32 has exactly: half a unit of the grid beside the result is outside."""
    recipe = "nvfp4 of one level"
    a, b, s, t = _draw(recipe, 0)
    a = torch.where(torch.arange(_LENGTH // 2) % 16 == 3, a.view(torch.uint8), 0).view(_PAIRS)
    s, t = torch.full(s.shape, 0.5).to(s.dtype), torch.full(t.shape, 2.0).to(t.dtype)
    arguments = (a, b, s, t)
    spec = _spec_of(recipe)
    right = _kernel(*arguments)
    opassay.assert_conforms(right, spec, *arguments)
    with pytest.raises(AssertionError):
        opassay.assert_conforms(right + 2.0**-12, spec, *arguments)


def _quantised(x: Tensor, s: Tensor) -> Tensor:
    """Codes of the nearest numbers of e2m1, in pairs."""
    y, code = (x / s).abs(), torch.zeros(x.shape, dtype=torch.uint8)
    for i, middle in enumerate((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)):
        code = code + (y > middle if i % 2 == 0 else y >= middle).to(torch.uint8)
    code = code | torch.where(x < 0, 8, 0).to(torch.uint8)
    return (code[..., 0::2] | (code[..., 1::2] << 4)).view(_PAIRS)


def test_pairs_may_be_results() -> None:
    x, s = torch.linspace(-7.0, 7.0, 64).reshape(4, 16), torch.tensor(1.0)
    judgement = opassay.judge(_quantised, _quantised, (x, s), questions=["FWD:given", "FWD:ties"], seed=0)
    assert judgement.verdict == "accepted", str(judgement)

    def as_bytes(x: Tensor, s: Tensor) -> Tensor:
        return _quantised(x, s).view(torch.uint8)

    def upper_half_first(x: Tensor, s: Tensor) -> Tensor:
        codes = _quantised(x, s).view(torch.uint8)
        return (codes >> 4 | codes << 4).view(_PAIRS)

    for kernel in (as_bytes, upper_half_first):
        assert opassay.judge(kernel, _quantised, (x, s), questions=["FWD:given"], seed=0).verdict == "rejected"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a, b, s, t: _by_shapes(a, b, s[:-1], t), "a scale with 1023 numbers"),
        (lambda a, b, s, t: _by_shapes(a, b, s.float(), t), "has no recipe"),
        (lambda a, b, s, t: (a * b[:5]).view(torch.uint8), "mul"),
    ],
)
def test_bad_arguments_are_named(change: Callable[..., Tensor], text: str) -> None:
    judgement = opassay.judge(change, change, _draw("nvfp4 of one level", 0), questions=["FWD:given"])
    assert judgement.verdict == "error"
    assert text in judgement.error, judgement.error
