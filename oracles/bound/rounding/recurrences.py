"""Linear recurrences h_t = a_t h_{t-1} + b_t that a text has as a loop, and a kernel as a scan.

docs/design/tolerance.md derives the radius ("Loops that kernels compute as scans"). S are the magnitudes of all terms,
and R holds the roundings of products and the radii of operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....reference.array import Params
from ..contract import Contract
from .ball import CHAINED, Ball, centre_of, magnitude_of
from .spread import SLACK

_Sizes = tuple[Any, Any]


class Chain:
    """A value as a sum of products: the numbers that bound its error in every order of evaluation.

    Attributes:
        steps: how many additions of a product lie on the longest way to it. product: whether it is one.
        outer, inner: how many additions there are of units, and how many a term passes in its unit.
        roundings: how many of all kinds a term passes.
    """

    __slots__ = ("_sizes", "inner", "outer", "product", "roundings", "steps")

    def __init__(
        self, steps: int, outer: float, inner: float, roundings: float, product: bool, sizes: Callable[[], _Sizes]
    ) -> None:
        self.steps, self.outer, self.inner, self.roundings, self.product = steps, outer, inner, roundings, product
        self._sizes: Callable[[], _Sizes] | _Sizes = sizes

    @property
    def additions(self) -> float:
        return self.outer + self.inner

    def sizes(self) -> _Sizes:
        """S and R, computed at their first use, because most chains end after a step."""
        if callable(self._sizes):
            self._sizes = self._sizes()
        return self._sizes

    def with_sizes(self, change: Callable[[Any], Any]) -> Chain:
        """The chain of elements that were moved."""

        def sizes() -> _Sizes:
            size, part = self.sizes()
            return change(size), change(part)

        return Chain(self.steps, self.outer, self.inner, self.roundings, self.product, sizes)


def _no_sizes() -> _Sizes:
    raise AssertionError("a product of single values has the sizes of its ball")


#: A product of values that are no chains.
_PRODUCT = Chain(0, 0.0, 0.0, 0.0, True, _no_sizes)


def _chain_of(x: Ball) -> Chain:
    """The chain of a ball; one without steps is a single term."""
    chain: Chain | None = x.chain
    if chain is not None and chain.steps:
        return chain
    return Chain(0, 0.0, 0.0, 0.0, chain is not None, lambda: (magnitude_of(x.centre) + x.radii(), x.radii()))


def _chain_addition(primitive: str, out: Ball, balls: Sequence[Ball], params: Params) -> None:
    if out.shape and any(x.shape == () for x in balls):
        return  # a number
    a, b = (_chain_of(x) for x in balls)
    steps = max(a.steps, b.steps) + (a.product or b.product)
    if not steps:
        return
    if a.additions < b.additions:
        a, b = b, a
    lost = out.contract.underflow if out.contract.flush else 0.0

    def sizes() -> _Sizes:
        (size, part), (more, other) = a.sizes(), b.sizes()
        return size + more, part + other + lost

    out.chain = Chain(
        steps, a.outer + 1.0, max(a.inner, b.additions), max(a.roundings, b.roundings) + 1.0, False, sizes
    )
    if steps > 1:
        _widen(out)


def _chain_product(primitive: str, out: Ball, balls: Sequence[Ball], params: Params) -> None:
    a, b = (_chain_of(x) for x in balls)
    if not a.steps and not b.steps:
        out.chain = _PRODUCT
        return
    contract = out.contract
    unit = _unit(contract)

    def sizes() -> _Sizes:
        (size, part), (factor, off) = a.sizes(), b.sizes()
        whole = size * factor
        # A product of factors alone may underflow before the term that it belongs to has come to it.
        return whole, size * off + part * factor + whole * unit + (1.0 + size + factor) * contract.underflow

    outer, inner = (max(x, y) for x, y in ((a.outer, b.outer), (a.inner, b.inner)))
    if a.steps and b.steps:
        outer, inner = 0.0, a.additions + b.additions + 1.0
    out.chain = Chain(max(a.steps, b.steps), outer, inner, a.roundings + b.roundings + 1.0, True, sizes)
    if a.steps and b.steps:
        _widen(out)


def _chain_move(primitive: str, out: Ball, balls: Sequence[Ball], params: Params) -> None:
    x, contract = balls[0], out.contract
    if x.chain is None or not x.chain.steps:
        out.chain = x.chain
        return
    shape = x.shape

    def move(values: Any) -> Any:
        return centre_of(primitive, params, contract, np.broadcast_to(values, shape))

    out.chain = x.chain.with_sizes(move)


def _chain_identity(primitive: str, out: Ball, balls: Sequence[Ball], params: Params) -> None:
    out.chain = balls[0].chain


def _widen(out: Ball) -> None:
    """The radius holds every order in which the terms may be made and added up."""
    assert out.chain is not None
    size, part = out.chain.sizes()
    unit = _unit(out.contract)
    chain, length = out.chain, out.chain.roundings * unit
    largest = 0.5 * (size + magnitude_of(out.centre) + part)
    radius = part + largest * (chain.outer * unit) + size * (chain.inner * unit + length * math.expm1(length))
    radius *= 1.0 + (8.0 + 4.0 * chain.roundings) * SLACK
    out.radius = np.where(size <= out.contract.limit, np.maximum(out.radii(), radius), np.inf)


def _unit(contract: Contract) -> float:
    return contract.roundoff + contract.centre_roundoff


CHAINED.update(
    {
        **dict.fromkeys(("add", "subtract"), _chain_addition),
        **dict.fromkeys(("reshape", "transpose", "getitem", "broadcast"), _chain_move),
        "multiply": _chain_product,
        "negative": _chain_identity,
    }
)
