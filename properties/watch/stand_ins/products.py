"""Products of matrices with another format of the result, and products of sparse matrices that are given as dense ones.

A sparse matrix is read as the dense one, of which the elements that are not 0 are those that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ....reference.missing import NoReadingError


def _product_in(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A product whose factors are widened to the format of the result, which is exact."""
    return lambda a, b, out_dtype: product(a.to(out_dtype), b.to(out_dtype))


def _sum_in(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def function(c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        return product(c.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta=beta, alpha=alpha)

    return function


def _multiply_groups(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """A product for every group; of an operand of two axes the groups are parts, which end at `offs`."""
    if bias is not None:
        raise NoReadingError("a grouped product with a bias, which no release of torch computes")
    ends = [] if offs is None else offs.tolist()
    parts = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    if not parts:
        product = torch.bmm(a, b)
    elif a.dim() == b.dim():
        product = torch.stack([a[:, part] @ b[part] for part in parts])
    elif a.dim() == 2:
        product = torch.cat([a[part] @ b[i] for i, part in enumerate(parts)])
    else:
        product = torch.cat([a[i] @ b[:, part] for i, part in enumerate(parts)], 1)
    if parts and a.dim() != b.dim() and ends[-1] != (a.shape[0] if a.dim() == 2 else b.shape[1]):
        raise NoReadingError("rows or columns in no group, which torch does not write")
    return product.to(out_dtype or a.dtype)


def _sampled_addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """β x + α (a b) at the elements that x has."""
    return torch.where(x != 0, torch.baddbmm(x, a, b, beta=beta, alpha=alpha) if x.dim() > 2 else
                       torch.addmm(x, a, b, beta=beta, alpha=alpha), 0.0)  # fmt: skip


def _reduce_rows(x: Tensor, other: Tensor, reduce: str) -> Tensor:
    """Of each row of a sparse matrix the products with the rows of the other one, reduced; 0 where it has none."""
    there = x != 0
    if reduce in ("sum", "mean"):
        counts = there.sum(1, keepdim=True).clamp(min=1).to(x.dtype)
        return x @ other if reduce == "sum" else x @ other / counts
    products, least = x[:, :, None] * other, -math.inf if reduce == "amax" else math.inf
    terms = torch.where(there[:, :, None], products, least)
    largest = terms.amax(1) if reduce == "amax" else terms.amin(1)
    return torch.where(there.any(1, keepdim=True), largest, 0.0)


STAND_INS: dict[str, Callable[..., Any]] = {
    "mm.dtype": _product_in(torch.mm),
    "bmm.dtype": _product_in(torch.bmm),
    "addmm.dtype": _sum_in(torch.addmm),
    "baddbmm.dtype": _sum_in(torch.baddbmm),
    "_grouped_mm": _multiply_groups,
    "_sparse_addmm": torch.addmm,
    "sparse_sampled_addmm": _sampled_addmm,
    "_sparse_mm_reduce_impl": _reduce_rows,
}
