"""Numbers that carry derivatives: truncated Taylor series in a few variables whose squares are zero.

A number is c + Σ c_S ε_S over products ε_S of distinct variables. There are single variables, each of which stands for
a direction, and the variables of a basis, of which no product has more than one: they stand for the elements of an
input, so that the coefficients of a scalar are its gradient. A function is applied by its Taylor coefficients at c
(`series`), and there is nothing else to differentiation: no tape, no reverse mode, and no rule that knows a formula.

A series is a dictionary by the product, as an integer: one bit per single variable, and the number of the basis
variable, counted from one, above them. What is not in it is exactly zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from . import functions, series
from .intervals import (
    ONE,
    ZERO,
    Interval,
    add,
    below,
    divide,
    equal,
    is_nan,
    is_zero,
    multiply,
    negative,
    point,
    subtract,
)

#: How many single variables there may be, and the first number above their products.
SINGLES = 3
BASIS = 1 << SINGLES

Terms = dict[int, Interval]
_NONE: Terms = {}


class Jet:
    """A value, and the coefficients of the products of variables.

    Attributes:
        value: without any variable. single: of products of single variables. basis: of those with a basis variable.
    """

    __slots__ = ("basis", "single", "value")

    def __init__(self, value: Interval, single: Terms = _NONE, basis: Terms = _NONE) -> None:
        self.value, self.single, self.basis = value, single, basis

    @property
    def plain(self) -> bool:
        """Whether the jet depends on no variable."""
        return not self.single and not self.basis

    @property
    def degree(self) -> int:
        """The most variables that a product in the jet may have."""
        bits = 0
        for key in (*self.single, *self.basis):
            bits |= key
        return (bits % BASIS).bit_count() + bool(self.basis)

    def __add__(self, other: Any) -> Jet:
        x = jet(other)
        return Jet(add(self.value, x.value), _join(self.single, x.single), _join(self.basis, x.basis))

    def __sub__(self, other: Any) -> Jet:
        return (
            self + -jet(other)
            if not self.plain or not jet(other).plain
            else Jet(subtract(self.value, jet(other).value))
        )

    def __mul__(self, other: Any) -> Jet:
        x = jet(other)
        product = Jet(multiply(self.value, x.value))
        if self.plain and x.plain:
            return product
        rest = _nilpotent(self, x)
        for one, by in ((self, x.value), (x, self.value)):
            rest = Jet(ZERO, _join(rest.single, _times(one.single, by)), _join(rest.basis, _times(one.basis, by)))
        return Jet(product.value, rest.single, rest.basis)

    def __truediv__(self, other: Any) -> Jet:
        x = jet(other)
        value = divide(self.value, x.value)
        if x.plain:
            single, basis = ({k: divide(c, x.value) for k, c in of.items()} for of in (self.single, self.basis))
            return Jet(value, single, basis)
        # The quotient q solves q x = self: what is left of the numerator without the variables of the divisor is
        # divided, which does not square the divisor where that may overflow.
        product = self * apply_series(x, divide(ONE, x.value), series.reciprocal)
        return Jet(value, product.single, product.basis)

    def __neg__(self) -> Jet:
        return Jet(negative(self.value), *({k: negative(c) for k, c in of.items()} for of in (self.single, self.basis)))

    def __abs__(self) -> Jet:
        return of_name("absolute", self)

    def __pow__(self, other: Any) -> Jet:
        return power(self, jet(other))

    def __radd__(self, other: Any) -> Jet:
        return jet(other) + self

    def __rsub__(self, other: Any) -> Jet:
        return jet(other) - self

    def __rmul__(self, other: Any) -> Jet:
        return jet(other) * self

    def __rtruediv__(self, other: Any) -> Jet:
        return jet(other) / self

    def __lt__(self, other: Any) -> bool:
        return below(self.value, jet(other).value)

    def __gt__(self, other: Any) -> bool:
        return below(jet(other).value, self.value)

    def __le__(self, other: Any) -> bool:
        x = jet(other).value
        return not (is_nan(self.value) or is_nan(x) or below(x, self.value))

    def __ge__(self, other: Any) -> bool:
        return jet(other) <= self

    def __eq__(self, other: object) -> bool:
        if other is self:
            return not is_nan(self.value)
        return equal(self.value, jet(other).value)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = object.__hash__

    # NumPy's own functions ask objects for these two by name.
    def conjugate(self) -> Jet:
        return self

    def sqrt(self) -> Jet:
        return of_name("sqrt", self)


def jet(value: Any) -> Jet:
    """A number of NumPy or Python as a jet without variables; a jet as it is."""
    return value if isinstance(value, Jet) else Jet(point(float(value)))


NOTHING = Jet(ZERO)


def _join(a: Terms, b: Terms) -> Terms:
    if not a or not b:
        return a or b
    out = dict(a)
    for key, c in b.items():
        out[key] = add(out[key], c) if key in out else c
    return out


def _times(terms: Terms, by: Interval) -> Terms:
    return {key: multiply(c, by) for key, c in terms.items()}


def _into(out: Terms, a: Terms, b: Terms) -> None:
    """Add the products of two series that have no variable twice."""
    for key, c in a.items():
        for other, d in b.items():
            if not key % BASIS & other % BASIS:
                product = multiply(c, d)
                both = key + other
                out[both] = add(out[both], product) if both in out else product


def _nilpotent(x: Jet, y: Jet) -> Jet:
    """The product of two numbers without their values."""
    single, basis = Terms(), Terms()
    _into(single, x.single, y.single)
    _into(basis, x.single, y.basis)
    _into(basis, x.basis, y.single)
    return Jet(ZERO, single, basis)


def apply_series(x: Jet, value: Interval, coefficients: Callable[[Interval, int], list[Interval]]) -> Jet:
    """A function of a jet.

    Args:
        value: of the function at the value of x. coefficients: its Taylor coefficients there, from the first on.
    """
    if x.plain:
        return Jet(value)
    step = Jet(ZERO, x.single, x.basis)
    single, basis, reached = Terms(), Terms(), step
    for c in coefficients(x.value, x.degree):
        # A coefficient that is zero adds nothing, whatever it is multiplied with.
        if not is_zero(c):
            single, basis = _join(single, _times(reached.single, c)), _join(basis, _times(reached.basis, c))
        reached = _nilpotent(reached, step)
        if reached.plain:
            break
    return Jet(value, single, basis)


def of_name(name: str, x: Jet) -> Jet:
    """A function of one argument by the name of its primitive."""
    if name == "negative":
        return -x
    value = functions.UNARY[name](x.value)
    return apply_series(x, value, lambda at, degree: series.coefficients(name, at, value, degree))


def power(x: Jet, exponent: Jet) -> Jet:
    """x to a constant power by its own series; to one that moves as exp(r log x)."""
    value = functions.power(x.value, exponent.value)
    if exponent.plain:
        return apply_series(x, value, lambda at, degree: series.of_power(at, exponent.value, degree))
    if is_zero(x.value) and not exponent.value[0] < 0:
        return Jet(value)  # 0^r is 0 for every positive r, and does not move with it.
    moved = of_name("exp", exponent * of_name("log", x))
    return Jet(value, moved.single, moved.basis)


def _hypot(x: Jet, y: Jet) -> Jet:
    length = functions.hypot(x.value, y.value)
    return with_value(length, of_name("sqrt", x * x + y * y))


def _arctan2(y: Jet, x: Jet) -> Jet:
    """The angle: that of the values, and what a rotation by it leaves, whose value is 0."""
    value, p, q = functions.arctan2(y.value, x.value), Jet(x.value), Jet(y.value)
    rest = (p * y - q * x) / (p * x + q * y)
    return with_value(value, of_name("arctan", Jet(ZERO, rest.single, rest.basis)))


def _logaddexp(x: Jet, y: Jet) -> Jet:
    value = functions.logaddexp(x.value, y.value)
    if x.plain and y.plain:
        return Jet(value)
    largest = Jet(functions.BINARY["maximum"](x.value, y.value))
    shares = of_name("exp", x - largest) + of_name("exp", y - largest)
    return with_value(value, of_name("log", shares))


def _fmod(x: Jet, y: Jet) -> Jet:
    quotient = of_name("trunc", Jet(divide(x.value, y.value)))
    return with_value(functions.fmod(x.value, y.value), x - quotient * y)


def with_value(value: Interval, slope: Jet) -> Jet:
    """A jet of this value, with the coefficients of another jet."""
    return Jet(value, slope.single, slope.basis)


def _extreme(largest: bool, x: Jet, y: Jet) -> Jet:
    """The larger or smaller of two; of equal ones the middle, whose slopes are half of either."""
    if is_nan(x.value) or is_nan(y.value):
        return x if is_nan(x.value) else y
    if x.plain and y.plain:
        return Jet(functions.BINARY["maximum" if largest else "minimum"](x.value, y.value))
    if x == y:
        return with_value(x.value, (x + y) * 0.5)
    return x if (x > y) is largest else y


def largest_of(row: list[Jet]) -> Jet:
    """The largest of several; equal ones share the slope evenly."""
    strange = [x for x in row if is_nan(x.value)]
    if strange:
        return strange[0]
    if all(x.plain for x in row):
        return functools.reduce(functools.partial(_extreme, True), row)
    best = row[0]
    for x in row[1:]:
        best = x if x > best else best
    tied = [x for x in row if x == best]
    if len(tied) == 1:
        return best
    return with_value(best.value, functools.reduce(lambda a, b: a + b, tied) / float(len(tied)))


#: Functions of two arguments by the names of primitives.
OF_TWO: Mapping[str, Callable[[Jet, Jet], Jet]] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y, "divide": lambda x, y: x / y,
    "power": power, "float_power": power, "hypot": _hypot, "arctan2": _arctan2, "logaddexp": _logaddexp, "fmod": _fmod,
    "maximum": functools.partial(_extreme, True), "minimum": functools.partial(_extreme, False),
    "attach": lambda x, y: with_value(x.value, y),
}  # fmt: skip


def vary(x: Jet, direction: Jet, key: int) -> Jet:
    """x + ε direction, for the single variable with that key."""
    return (
        x
        + Jet(ZERO, {key: direction.value})
        + Jet(ZERO, {key + k: c for k, c in direction.single.items()}, {key + k: c for k, c in direction.basis.items()})
    )


def coefficient(x: Jet, key: int) -> Jet:
    """What ε of that key is multiplied with: ∂x/∂ε."""
    single, basis = ({k - key: c for k, c in of.items() if k & key} for of in (x.single, x.basis))
    return Jet(single.pop(0, ZERO), single, basis)


def slope_along(x: Jet, number: int) -> Jet:
    """What the basis variable of that number is multiplied with."""
    first = (number + 1) * BASIS
    terms = {k - first: x.basis[k] for k in range(first, first + BASIS) if k in x.basis}
    return Jet(terms.pop(0, ZERO), terms)
