"""DATA: where every partial result is exact in any order, the output must be equal bit for bit.

On integers times a power of two, sums and products that stay below 2^p are exact, whatever the order, the tree or the
number of partial sums. The reading of this page is the rounding reading that knows it: a sum or product of exact
elements keeps radius zero while it stays below 2^p units of its terms' common power of two. Elements whose radius is
still zero at the end, whichever of the formula's algorithms is taken, must be exact. Quotients are never credited: an
implementation may average in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...reference.algorithms import Inapplicable, algorithms
from ...reference.array import Array, Operands, Params
from ...reference.formats import FORMATS, round_array
from ..contract import Contract
from ..judge import Judge
from ..op import Sample, dtype_name, to_array
from ..paths import Expected
from ..rounding import Ball
from ..transforms import word_name
from ..verdict import Code


def lowest_bit(values: Any) -> Any:
    """The largest power of two that divides each value; infinite for zero."""
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    # 53 bits hold every mantissa of a float64 as an integer, and of an integer n in two's complement, n & −n is the
    # lowest bit that is set.
    integers = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    low = (integers & -integers).astype(np.float64)
    return np.where(low == 0, np.inf, np.ldexp(low, exponent - 53))


class ExactBall(Ball):
    """A ball whose radius stays zero where the result is exact in any order of evaluation."""

    __slots__ = ()

    def lift(self, value: Any) -> Ball:
        return _credited(super().lift(value))

    def base(self) -> Array:
        return self

    def apply(self, primitive: str, operands: Operands, params: Params) -> Ball:
        out = super().apply(primitive, operands, params)
        rule = _CREDIT.get(primitive)
        # Any radius above zero withdraws the credit. It must be set here, because the quotient by a power of two is
        # exact in the rounding reading.
        if primitive == "divide":
            return ExactBall(out.centre, np.maximum(out.radii(), self.contract.underflow), out.contract)
        if rule is None or out.radius is None:
            return _credited(out)
        read = [x if isinstance(x, Ball) else super(ExactBall, self).lift(x) for x in operands]
        exact = rule(self.contract, out, *read, **params) & np.isfinite(out.radii())
        return ExactBall(out.centre, np.where(exact, 0.0, out.radii()), out.contract)


def _credited(ball: Ball) -> ExactBall:
    return ExactBall(ball.centre, ball.radius, ball.contract)


def _holds_multiples(contract: Contract, size: Any, unit: Any) -> Any:
    """Multiples of `unit` up to `size` are held by the accumulate format."""
    fmt = contract.accumulate
    # Every integer up to 2^p has at most p bits once its trailing zeros are taken off, so it is held without rounding.
    # Below the smallest subnormal, and beyond the largest number, that is not so.
    return (size <= 2.0**fmt.precision * unit) & (unit >= fmt.smallest_subnormal) & (size <= fmt.max)


def _both(a: Ball, b: Ball) -> Any:
    return (a.radii() == 0) & (b.radii() == 0)


def _credit_add(contract: Contract, out: Ball, a: Ball, b: Ball) -> Any:
    unit = np.minimum(lowest_bit(a.centre), lowest_bit(b.centre))
    return _both(a, b) & _holds_multiples(contract, np.abs(a.centre) + np.abs(b.centre), unit)


def _credit_multiply(contract: Contract, out: Ball, a: Ball, b: Ball) -> Any:
    # Zero times any finite number is zero, even if the other factor is not known exactly.
    zero = ((a.centre == 0) & (a.radii() == 0)) | ((b.centre == 0) & (b.radii() == 0))
    return zero | (
        _both(a, b) & _holds_multiples(contract, np.abs(out.centre), lowest_bit(a.centre) * lowest_bit(b.centre))
    )


def _credit_sum(contract: Contract, out: Ball, a: Ball, axes: tuple[int, ...]) -> Any:
    size = np.sum(np.abs(a.centre), axis=axes, keepdims=True)
    unit = np.min(lowest_bit(a.centre), axis=axes, keepdims=True, initial=np.inf)
    return _holds_multiples(contract, size, unit) & np.all(a.radii() == 0, axis=axes, keepdims=True)


_CREDIT: dict[str, Callable[..., Any]] = {
    "add": _credit_add,
    "subtract": _credit_add,
    "multiply": _credit_multiply,
    "square": lambda contract, out, a: _credit_multiply(contract, out, a, a),
    "sum": _credit_sum,
}


def _read(expected: Expected, contract: Contract) -> tuple[Ball, ...]:
    """The outputs, with a radius of zero only where they are exact in any order of every algorithm of the formula."""
    centres = [np.asarray(v, dtype=contract.centre_type) for v in expected.operands]
    found: tuple[Ball, ...] = ()
    for formula in (expected.formula, *algorithms(expected.formula)):
        try:
            with np.errstate(all="ignore"):
                read = tuple(formula(*(ExactBall(c, None, contract) for c in centres)))
        except Inapplicable:
            continue
        # A difference x - m that is zero is exact, but not the x a - m a that an algorithm may make of it.
        found = tuple(map(_less_exact, found, read)) if found else read
    return found


def _less_exact(a: Ball, b: Ball) -> Ball:
    """The first of two readings of an output, with the larger radius of the two."""
    return ExactBall(a.centre, np.maximum(a.radii(), b.radii()), a.contract)


def exact_data(judge: Judge, sample: Sample) -> None:
    """DATA: forward and reverse mode."""
    primal = judge.primal(sample)
    for word in ((), ("vjp",)):
        drawn = judge.path(sample, word, primal, "eager")
        # The cotangents must be small integers, too; products with any other numbers would round, and nothing could be
        # asked.
        path = drawn.along(word, [(d * 2).round() for d in drawn.directions])
        computed = judge.run(path, what="vjp") if word else primal
        expected = path.expected(word_name(word))
        with judge.tally.clock("reference"):
            read = _read(expected, judge.contract)
        judge.require_outputs(computed, read, expected.path)
        for name, tensor, ball in zip(expected.names, computed, read, strict=True):
            certain = ball.radii() == 0
            got, fmt = to_array(tensor), FORMATS[dtype_name(tensor.dtype)]
            need = round_array(fmt, np.asarray(ball.centre, dtype=np.float64))
            wrong = certain & (got != need)
            judge.tally.count(int(certain.sum()))
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                lines = [f"{name}{list(at)}: got {float(got[at]).hex()}, need {float(need[at]).hex()} in any order"]
                raise judge.broken(Code.BITS, f"{name} is not exact on exact data", lines, where=expected.path)
