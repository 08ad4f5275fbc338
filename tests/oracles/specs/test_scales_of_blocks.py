"""torch._scaled_mm with a scale for each block: no kernel for CPUs has it, and a spec is read as the plain product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.specs import traced

_ROWS, _COLUMNS = 130, 150


def _scaled(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    return torch._scaled_mm(a, b, s, t, out_dtype=torch.float32)


def _by_recipe(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    recipe, swizzle = functional.ScalingType.BlockWise1x32, functional.SwizzleType.SWIZZLE_32_4_4
    return functional.scaled_mm(
        a, b, s, recipe, t, recipe, swizzle_a=swizzle, swizzle_b=swizzle, output_dtype=torch.float32
    )


def _by_long_recipe(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """Scales by rows, and those of squares, which the recipe fills up to four blocks."""
    kinds = functional.ScalingType.BlockWise1x128, functional.ScalingType.BlockWise128x128
    recipes = [kinds[len(scale) != rows] for scale, rows in ((s, _ROWS), (t, _COLUMNS))]
    return functional.scaled_mm(a, b, s, recipes[0], t, recipes[1], output_dtype=torch.float32)


def _for_recipe(scale: Tensor, rows: int) -> Tensor:
    if len(scale) == rows:
        return scale
    whole = torch.full((4, scale.shape[0]), 77.0)
    whole[: scale.shape[1]] = scale.t()
    return whole


def _factors(length: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(length)
    eight = torch.float8_e4m3fn
    return torch.randn(_ROWS, length).to(eight), torch.randn(_COLUMNS, length).to(eight).t()


def _each(scale: Tensor, rows: int, columns: int) -> Tensor:
    """A scale of long blocks for every element of a matrix."""
    wide = scale if scale.shape[0] == rows else scale.repeat_interleave(128, 0)[:rows]
    return wide if wide.shape[1] == columns else wide.repeat_interleave(128, 1)[:, :columns]


def _in_tiles(scale: Tensor) -> Tensor:
    """Scales in the order of SWIZZLE_32_4_4, as NVIDIA's cuBLAS documents it, by padding and moving axes."""
    rows, columns = -(-scale.shape[0] // 128), -(-scale.shape[1] // 4)
    whole = torch.zeros(rows * 128, columns * 4)
    whole[: scale.shape[0], : scale.shape[1]] = scale
    return whole.view(rows, 4, 32, columns, 4).permute(0, 3, 2, 1, 4).reshape(-1)


def _case(name: str) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """Arguments, and the scales of every element of both factors."""
    length = 160 if name.startswith("32") else 300
    a, b = _factors(length)
    if name.startswith("32"):
        s, t = (2.0 ** torch.randint(-3, 4, (n, length // 32)).float() for n in (_ROWS, _COLUMNS))
        tiles = [_in_tiles(scale).to(torch.float8_e8m0fnu) for scale in (s, t)]
        return (a, b, *tiles), s.repeat_interleave(32, 1), t.repeat_interleave(32, 1).t()
    long = {"128 x 128 and 128": (2, _COLUMNS), "128 and 128 x 128": (_ROWS, 2), "128 and 128": (_ROWS, _COLUMNS)}
    rows, columns = long[name.removesuffix(" by recipe")]
    s, t = torch.rand(rows, 3) + 0.5, torch.rand(3, columns) + 0.5
    wide = _each(s, _ROWS, length), _each(t.t(), _COLUMNS, length).t()
    if name.endswith("by recipe"):
        return (a, b, _for_recipe(s, _ROWS), _for_recipe(t.t(), _COLUMNS)), *wide
    return (a, b, s, t), *wide


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    "name",
    [
        *("128 and 128 x 128", "128 x 128 and 128", "128 and 128", "32 in e8m0", "32 by recipe"),
        *("128 and 128 x 128 by recipe", "128 x 128 and 128 by recipe", "128 and 128 by recipe"),
    ],
)
def test_blocks_are_scaled_and_mistakes_are_outside(name: str) -> None:
    arguments, s, t = _case(name)
    a, b = arguments[0].double(), arguments[1].double()
    numbers = [x.double().numpy() for x in arguments]
    spec = _by_recipe if name == "32 by recipe" else _by_long_recipe if name.endswith("by recipe") else _scaled
    (ball,) = balls(traced(spec, *arguments), numbers, contract("float32"))
    rightly: dict[str, Callable[[], Tensor]] = {
        "factors": lambda: (a.float() * s) @ (b.float() * t),
        "in float64": lambda: ((a * s) @ (b * t)).float(),
    }
    wrongly: dict[str, Callable[[], Tensor]] = {
        "scales of the block before": lambda: ((a * s.roll(128, 1)) @ (b * t)).float(),
        "scales of other rows": lambda: ((a * s.roll(1, 0).flip(0)) @ (b * t)).float(),
        "one scale left out": lambda: ((a * s) @ b).float(),
    }
    for what, result in {**rightly, **wrongly}.items():
        error = np.abs(result().double().numpy() - ball.centre)
        assert bool((error <= ball.radii()).all()) == (what in rightly), what
