"""Mistakes that are made in an output: what a check of it should see, whatever the op.

Each is a kind of mistake that kernels have: an output that nobody wrote, a sign, a factor, a tile or a row that a loop
leaves out, a result that is rounded to a half type, and a NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Tensor = torch.Tensor
#: Elements of a tile, at most a quarter of the output.
_TILE = 16


def _without_tile(y: Tensor) -> Tensor:
    flat = y.reshape(-1).clone()
    size = max(min(_TILE, flat.numel() // 4), 1)
    flat[-size:] = 0
    return flat.reshape(y.shape)


def _without_row(y: Tensor) -> Tensor:
    rows = y.reshape(-1, y.shape[-1] if y.dim() > 1 else 1).clone()
    rows[len(rows) // 2] = 0
    return rows.reshape(y.shape)


def _with_nan(y: Tensor) -> Tensor:
    flat = y.reshape(-1).clone()
    flat[flat.numel() // 2] = torch.nan
    return flat.reshape(y.shape)


#: name -> what becomes of a floating output that has elements.
SPOILS: dict[str, Callable[[Tensor], Tensor]] = {
    "all zeros": torch.zeros_like,
    "a constant: the mean": lambda y: torch.full_like(y, float(y.double().mean())),
    "the other sign": torch.neg,
    "all times 1.05": lambda y: y * 1.05,
    "one tile left out": _without_tile,
    "one row left out": _without_row,
    "rounded to bfloat16": lambda y: y.bfloat16().to(y.dtype),
    "one NaN": _with_nan,
}
