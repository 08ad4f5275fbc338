"""Ways to add, to multiply and to round that implementations of many problems have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

# -------------------------------- sums along the last axis


def halves(x: Tensor) -> Tensor:
    """By halves."""
    half = x.shape[-1] // 2
    return halves(x[..., :half]) + halves(x[..., half:]) if half else x.sum(-1)


def tiles(x: Tensor, size: int = 16) -> Tensor:
    """Tile after tile."""
    return added(part.sum(-1) for part in x.split(size, -1))


def lanes(x: Tensor, count: int = 8) -> Tensor:
    """In lanes that are added in the end."""
    return halves(torch.stack([x[..., lane::count].sum(-1) for lane in range(min(count, x.shape[-1]))], -1))


def backwards(x: Tensor) -> Tensor:
    """One by one, the last first."""
    return added(reversed(x.unbind(-1)))


def compensated(x: Tensor) -> Tensor:
    """Kahan's sum."""
    total, lost = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for term in x.unbind(-1):
        y = term - lost
        larger = total + y
        lost = (larger - total) - y
        total = larger
    return total


def added(terms: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, terms)


#: Sums along the last axis, by what they are called.
SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "by halves": halves, "in tiles": tiles, "in lanes": lanes, "the last first": backwards,
}  # fmt: skip

# -------------------------------- products of matrices


def split(a: Tensor, b: Tensor, start: Tensor | None = None, size: int = 16) -> Tensor:
    """Over parts of the inner axis, on top of what the accumulator begins with."""
    parts = [p @ q for p, q in zip(a.split(size, -1), b.split(size, -2), strict=True)]
    return added(parts if start is None else [start, *parts])


def split_last_first(a: Tensor, b: Tensor, start: Tensor | None = None) -> Tensor:
    parts = [p @ q for p, q in zip(a.split(16, -1), b.split(16, -2), strict=True)][::-1]
    return added(parts if start is None else [start, *parts])


def term_by_term(a: Tensor, b: Tensor, start: Tensor | None = None) -> Tensor:
    """One outer product after another."""
    terms = [a[..., k, None] * b[..., k, None, :] for k in range(a.shape[-1])]
    return added(terms if start is None else [start, *terms])


def in_blocks(a: Tensor, b: Tensor) -> Tensor:
    """Blocks of rows and columns, each on its own."""
    return torch.cat([torch.cat([p @ q for q in b.split(8, -1)], -1) for p in a.split(8, -2)], -2)


#: Products of matrices, by what they are called.
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "split K": split, "split K, last first": split_last_first, "term by term": term_by_term, "in blocks": in_blocks,
}  # fmt: skip


# -------------------------------- roundings that nobody asked for


def bf(x: Tensor) -> Tensor:
    """Rounded to bfloat16 on the way."""
    return x.bfloat16().to(x.dtype)


def tf32(x: Tensor) -> Tensor:
    """Rounded to the 11 bits of TF32."""
    wide = x.float()
    high = wide.detach() * 8193.0
    return (x + ((high - (high - wide.detach())) - wide.detach())).to(x.dtype)


def truncated(x: Tensor) -> Tensor:
    """To bfloat16 by leaving out the low half of the bits."""
    wide = x.float().contiguous()
    return (wide.detach().view(torch.int32) & -65536).view(torch.float32).to(torch.bfloat16).to(x.dtype)


def away(x: Tensor) -> Tensor:
    """To the nearest integer, halves away from zero."""
    return torch.trunc(x + 0.5 * torch.sign(x))


def shifted(x: Tensor) -> Tensor:
    """Rows that are one place late: every row is the one before it."""
    return torch.cat([x[:1], x[:-1]])


def but_last(x: Tensor, value: float = 0.0) -> Tensor:
    """The last column lost."""
    return torch.cat([x[..., :-1], torch.full_like(x[..., -1:], value)], -1)
