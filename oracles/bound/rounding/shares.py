"""What each primitive of a text adds to the radii of its results: those of the text, less those without its roundings.

A part is left out by a format so fine that its roundings are nothing, and all others stay: so errors that cancel, in
common errors as in differences, are counted as they are in the whole. To first order radii are sums over the parts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....reference.array import Params
from ....reference.formats import BINARY64
from ..contract import Contract
from .applications import Applications, apply_by
from .ball import Ball
from .reading import balls_of_values

#: Digits of a format whose roundings are nothing beside those of a narrower one: the most of which centres stay
#: float64. And beside those of float64, whose centres are wider: those of binary128.
_FINE, _FINEST = BINARY64.precision - 1, 113


@dataclass(frozen=True)
class PrimitivePlace:
    """Applications of one primitive in one place of a text: of a line, `line`, and of an operation in it."""

    line: str
    operation: str
    primitive: str


class _Leaving(Applications):
    """Applies all primitives of a reading, those of one part without their roundings.

    Attributes:
        leaves: the parts that were met whose applications apply nothing else, in order.
    """

    def __init__(
        self, without: PrimitivePlace | None, place: Callable[[], tuple[str, str]], contract: Contract
    ) -> None:
        super().__init__(())
        self.leaves: dict[PrimitivePlace, None] = {}
        self._without, self._place, self._count = without, place, 0
        fine = _FINE if contract.accumulate.precision < BINARY64.precision else _FINEST
        # The largest number of the finer format has to be a float, too.
        most = min(contract.accumulate.exponent_max, BINARY64.exponent_max - 1)
        fmt = replace(contract.accumulate, precision=fine, exponent_max=most)
        self._fine = replace(contract, accumulate=fmt, intermediates=False)

    def add(self, apply: Callable[..., Any], primitive: str, operands: list[Any], params: Params) -> Any:
        part, before = PrimitivePlace(*self._place(), primitive), self._count
        if part != self._without:
            out = apply(primitive, operands, params)
        elif primitive == "store":
            out = operands[0]
        else:
            # One ball may be several operands, as of a square.
            copies = {id(x): copy.copy(x) for x in operands}
            for each in copies.values():
                each.contract = self._fine
            out, contract = apply(primitive, [copies[id(x)] for x in operands], params), operands[0].contract
            out.contract = contract
        if self._count == before:
            self.leaves[part] = None
        self._count += 1
        return out


def shares_of(
    function: Callable[..., Any], values: Sequence[Any], contract: Contract, place: Callable[[], tuple[str, str]]
) -> Iterator[tuple[PrimitivePlace | None, tuple[Any, ...]]]:
    """The radii of a text's results, first those of all of it, by None; then what is lost of them without each part.

    Args:
        function, values, contract: as for `balls`; the text alone is read, without its other algorithms.
        place: the line and the operation that are read now.
    """

    def read(notes: _Leaving) -> tuple[Any, ...]:
        with np.errstate(all="ignore"), apply_by(notes):
            results = function(*(balls_of_values(v, contract) for v in values))
        results = results if isinstance(results, (tuple, list)) else (results,)
        return tuple(y.radii() if isinstance(y, Ball) else None for y in results)

    notes = _Leaving(None, place, contract)
    whole = read(notes)
    yield None, whole
    for part in notes.leaves:
        rest = read(_Leaving(part, place, contract))
        with np.errstate(all="ignore"):
            yield part, tuple(None if a is None else np.asarray(a - b) for a, b in zip(whole, rest, strict=True))
