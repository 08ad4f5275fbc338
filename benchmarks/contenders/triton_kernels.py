"""Kernels that call one function of Triton: of elements, of rows, and of rows to a number; all compute in float32."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import libdevice as libdevice

#: What stands behind a row, so that it changes nothing.
_BEHIND = {"softmax": -float("inf"), "cumsum": 0.0, "sort": float("inf"), "sum": 0.0, "max": -float("inf")}
_SHRINKING = ("sum", "max")
language = tl


@triton.jit  # type: ignore[untyped-decorator]
def _of_elements(X, Y, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + k, FUNCTION(tl.load(X + k, mask=k < n).to(tl.float32)), mask=k < n)


@triton.jit  # type: ignore[untyped-decorator]
def _of_rows(X, Y, n, behind, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(Y + row * n + k, FUNCTION(tl.load(X + row * n + k, mask=k < n, other=behind).to(tl.float32)), mask=k < n)


@triton.jit  # type: ignore[untyped-decorator]
def _to_a_number(X, Y, n, behind, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(Y + row, FUNCTION(tl.load(X + row * n + k, mask=k < n, other=behind).to(tl.float32), 0))


def launch(function: Any, x: Tensor) -> Tensor:
    """The function of every element of a tensor, or of every row of a matrix."""
    name, x = str(function.__name__), x.contiguous()
    if name not in _BEHIND:
        y = torch.empty_like(x)
        _of_elements[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), function, 256)
        return y
    rows, n = x.shape
    y = x.new_empty(rows, 1) if name in _SHRINKING else torch.empty_like(x)
    kernel = _to_a_number if name in _SHRINKING else _of_rows
    kernel[(rows,)](x, y, n, _BEHIND[name], function, triton.next_power_of_2(n))
    return y
