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
import operator
from collections.abc import Callable, Mapping
from typing import Any

from . import functions, series
from .intervals import ONE, ZERO, Interval, add, below, divide, equal, multiply, negative, point, subtract

#: How many single variables there may be, and the first number above their products.
SINGLES = 3
BASIS = 1 << SINGLES

Terms = dict[int, Interval]
_NONE: Terms = {}


class Jet:
    """A value, and the coefficients of the products of variables.

    Attributes:
        value: without any variable. terms: the coefficients, by product.
    """

    __slots__ = ("terms", "value")

    def __init__(self, value: Interval, terms: Terms = _NONE) -> None:
        self.value, self.terms = value, terms

    @property
    def plain(self) -> bool:
        """Whether it depends on no variable."""
        return not self.terms

    @property
    def degree(self) -> int:
        """The most variables that a product of it may have."""
        bits = functools.reduce(operator.or_, self.terms, 0)
        return (bits % BASIS).bit_count() + (bits >= BASIS)

    def __add__(self, other: Any) -> Jet:
        x = jet(other)
        return Jet(add(self.value, x.value), _joined(self.terms, x.terms))

    def __sub__(self, other: Any) -> Jet:
        x = jet(other)
        return Jet(subtract(self.value, x.value), _joined(self.terms, (-x).terms))

    def __mul__(self, other: Any) -> Jet:
        x = jet(other)
        parts = _nilpotent(self.terms, x.terms), _times(self.terms, x.value), _times(x.terms, self.value)
        return Jet(multiply(self.value, x.value), functools.reduce(_joined, parts))

    def __truediv__(self, other: Any) -> Jet:
        x = jet(other)
        value = divide(self.value, x.value)
        if x.plain:
            return Jet(value, {key: divide(c, x.value) for key, c in self.terms.items()})
        # The quotient q solves q x = self: what is left of the numerator without the variables of the divisor is
        # divided, which does not square the divisor where that may overflow.
        return with_value(value, self * power(x, Jet(-ONE)))

    def __neg__(self) -> Jet:
        return Jet(negative(self.value), {key: negative(c) for key, c in self.terms.items()})

    def __abs__(self) -> Jet:
        return of_name("absolute", self)

    def __pow__(self, other: Any) -> Jet:
        return power(self, jet(other))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Jet:
        return jet(other) - self

    def __rtruediv__(self, other: Any) -> Jet:
        return jet(other) / self

    def __lt__(self, other: Any) -> bool:
        return below(self.value, jet(other).value)

    def __gt__(self, other: Any) -> bool:
        return below(jet(other).value, self.value)

    def __le__(self, other: Any) -> bool:
        x = jet(other).value
        return not (self.value.is_nan() or x.is_nan() or below(x, self.value))

    def __ge__(self, other: Any) -> bool:
        return jet(other) <= self

    def __eq__(self, other: object) -> bool:
        if other is self:
            return not self.value.is_nan()
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


def _joined(a: Terms, b: Terms) -> Terms:
    if not a or not b:
        return a or b
    out = dict(a)
    for key, c in b.items():
        out[key] = add(out[key], c) if key in out else c
    return out


def _times(terms: Terms, by: Interval) -> Terms:
    return {key: multiply(c, by) for key, c in terms.items()}


def _nilpotent(a: Terms, b: Terms) -> Terms:
    """The products of two series that have no variable twice, and no more than one of the basis."""
    out, singles = Terms(), {key: c for key, c in b.items() if key < BASIS}
    for key, c in a.items():
        for other, d in (b if key < BASIS else singles).items():
            if not key & other:
                product, both = multiply(c, d), key + other
                out[both] = add(out[both], product) if both in out else product
    return out


def applied(x: Jet, value: Interval, coefficients: Callable[[Interval, int], list[Interval]]) -> Jet:
    """A function of a jet.

    Args:
        value: of the function at the jet's own. coefficients: its Taylor coefficients there, from the first on.
    """
    terms, reached = Terms(), x.terms
    for c in coefficients(x.value, x.degree) if reached else ():
        # A coefficient that is zero adds nothing, whatever it is multiplied with.
        if not c.is_zero():
            terms = _joined(terms, _times(reached, c))
        reached = _nilpotent(reached, x.terms)
    return Jet(value, terms)


def of_name(name: str, x: Jet) -> Jet:
    """A function of one argument by the name of its primitive."""
    if name == "negative":
        return -x
    value = functions.UNARY[name](x.value)
    return applied(x, value, lambda at, degree: series.coefficients(name, at, value, degree))


def polygamma(order: int, x: Jet) -> Jet:
    value = functions.polygamma(order, x.value)
    return applied(x, value, lambda at, degree: series.of_polygamma(order, at, degree))


def power(x: Jet, exponent: Jet) -> Jet:
    """x to a constant power by its own series; to one that moves as exp(r log x)."""
    value = functions.power(x.value, exponent.value)
    if exponent.plain:
        return applied(x, value, lambda at, degree: series.of_power(at, exponent.value, degree))
    if x.value.is_zero() and exponent.value >= 0:
        return Jet(value)  # 0^r is 0 for every positive r, and does not move with it.
    return with_value(value, of_name("exp", exponent * of_name("log", x)))


def _hypot(x: Jet, y: Jet) -> Jet:
    length = functions.BINARY["hypot"](x.value, y.value)
    return with_value(length, of_name("sqrt", x * x + y * y))


def _arctan2(y: Jet, x: Jet) -> Jet:
    """The angle, as the angle of the values and what a rotation by it leaves."""
    value, p, q = functions.BINARY["arctan2"](y.value, x.value), Jet(x.value), Jet(y.value)
    left = (p * y - q * x) / (p * x + q * y)
    return with_value(value, of_name("arctan", Jet(ZERO, left.terms)))


def _logaddexp(x: Jet, y: Jet) -> Jet:
    value = functions.BINARY["logaddexp"](x.value, y.value)
    if x.plain and y.plain:
        return Jet(value)
    largest = Jet(functions.BINARY["maximum"](x.value, y.value))
    shares = of_name("exp", x - largest) + of_name("exp", y - largest)
    return with_value(value, of_name("log", shares))


def _fmod(x: Jet, y: Jet) -> Jet:
    quotient = of_name("trunc", Jet(divide(x.value, y.value)))
    return with_value(functions.BINARY["fmod"](x.value, y.value), x - quotient * y)


def with_value(value: Interval, slope: Jet) -> Jet:
    """That value with the coefficients of another number."""
    return Jet(value, slope.terms)


def _extreme(largest: bool, x: Jet, y: Jet) -> Jet:
    """The larger or smaller of two; of equal ones the middle, whose slopes are half of either."""
    if x.value.is_nan() or y.value.is_nan():
        return x if x.value.is_nan() else y
    if x.plain and y.plain:
        return Jet(functions.BINARY["maximum" if largest else "minimum"](x.value, y.value))
    if x == y:
        return with_value(x.value, (x + y) * 0.5)
    return x if (x > y) is largest else y


def largest_of(row: list[Jet]) -> Jet:
    """The largest of several; equal ones share the slope evenly."""
    strange = [x for x in row if x.value.is_nan()]
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


def varied(x: Jet, direction: Jet, key: int) -> Jet:
    """x + ε direction, for the single variable with that key."""
    return x + Jet(ZERO, {key: direction.value, **{key + k: c for k, c in direction.terms.items()}})


def coefficient(x: Jet, key: int) -> Jet:
    """What ε of that key is multiplied with: ∂x/∂ε."""
    terms = {k - key: c for k, c in x.terms.items() if k & key}
    return Jet(terms.pop(0, ZERO), terms)


def slope_along(x: Jet, number: int) -> Jet:
    """What the basis variable of that number is multiplied with."""
    first = (number + 1) * BASIS
    terms = {k - first: x.terms[k] for k in range(first, first + BASIS) if k in x.terms}
    return Jet(terms.pop(0, ZERO), terms)
