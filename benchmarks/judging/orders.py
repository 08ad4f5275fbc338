"""Sums and products of matrices in other orders, and whole functions in wider formats."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Way = Callable[..., Tensor]


def in_float32(way: Way) -> Way:
    """A kernel of half types: everything in float32, rounded once."""

    @functools.wraps(way)
    def rounded_once(*args: Tensor) -> Tensor:
        return way(*(t.float() for t in args)).to(args[0].dtype)

    return rounded_once


def in_float64(way: Way) -> Way:
    def rounded_once(*args: Tensor) -> Tensor:
        return way(*(t.double() for t in args)).to(args[0].dtype)

    return rounded_once


# -------------------------------- sums


def pairwise(x: Tensor) -> Tensor:
    """The sum along the last axis by halves."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        joined = x[..., :half] + x[..., half : 2 * half]
        x = torch.cat([joined, x[..., 2 * half :]], -1)
    return x[..., 0]


def in_turn(x: Tensor) -> Tensor:
    return functools.reduce(torch.add, x.unbind(-1))


def reversed_sum(x: Tensor) -> Tensor:
    return in_turn(x.flip(-1))


def in_blocks(x: Tensor, size: int = 16) -> Tensor:
    return functools.reduce(torch.add, (part.sum(-1) for part in x.split(size, -1)))


def kahan(x: Tensor) -> Tensor:
    total, lost = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for term in x.unbind(-1):
        y = term - lost
        grown = total + y
        lost = (grown - total) - y
        total = grown
    return total


SUMS: dict[str, Way] = {
    "by halves": pairwise,
    "in turn": in_turn,
    "from the end": reversed_sum,
    "in blocks of 16": in_blocks,
    "compensated": kahan,
    "in float64": in_float64(lambda x: x.sum(-1)),
}


# -------------------------------- products of matrices


def split_k(a: Tensor, b: Tensor, size: int = 16) -> Tensor:
    return functools.reduce(torch.add, (p @ q for p, q in zip(a.split(size, -1), b.split(size, -2), strict=True)))


def one_by_one(a: Tensor, b: Tensor) -> Tensor:
    return functools.reduce(torch.add, (a[..., k, None] * b[..., k, None, :] for k in range(a.shape[-1])))


def fused(a: Tensor, b: Tensor) -> Tensor:
    """From the last term to the first, each product fused with the sum, which float64 comes near to."""
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    for k in reversed(range(a.shape[-1])):
        total = (total.double() + a[..., k, None].double() * b[..., k, None, :].double()).to(a.dtype)
    return total


def by_halves(a: Tensor, b: Tensor) -> Tensor:
    return pairwise(a[..., :, None, :] * b.transpose(-1, -2)[..., None, :, :])


PRODUCTS: dict[str, Way] = {
    "split": split_k,
    "one by one": one_by_one,
    "fused": fused,
    "by halves": by_halves,
    "in float64": in_float64(torch.matmul),
    "einsum": lambda a, b: torch.einsum("...ij,...jk->...ik", a, b),
}


def two_layers(x: Tensor, up: Tensor, down: Tensor, product: Way = torch.matmul) -> Tensor:
    return product(F.silu(product(x, up)), down)


def three_layers(x: Tensor, *weights: Tensor, product: Way = torch.matmul) -> Tensor:
    for weight in weights:
        x = torch.relu(product(x, weight)) * 1.25
    return x
