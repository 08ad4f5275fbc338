"""Constants that no float holds, which each reading takes to its own precision."""

from __future__ import annotations

from fractions import Fraction


class Irrational(float):
    """An irrational number: as a float the nearest one, beside a reading's arrays the number itself.

    A float in a formula is held exactly, because a formula that says 0.1 means binary64's 0.1. So the slope of a
    logarithm to base 2 would be off by 2^-54 if it were divided by the float nearest to log 2; the exact reading takes
    this number by its name instead.

    Attributes:
        name: by which the exact reading knows it.
        low: what the nearest float leaves of the number, to float64's precision.
    """

    name: str
    low: float

    def __new__(cls, name: str, high: float, low: float) -> Irrational:
        number = super().__new__(cls, high)
        number.name, number.low = name, low
        return number


class Precise(float):
    """A rational number that two floats hold: as a float the nearest one, beside a reading's arrays the number itself.

    Attributes:
        low: what the nearest float leaves of the number, exactly.
    """

    low: float

    def __new__(cls, high: float, low: float) -> Precise:
        number = super().__new__(cls, high)
        number.low = low
        return number


def one_less(number: float) -> float:
    """`number` − 1 without any rounding.

    The exponent of a power's slope is one less than that of the power. As a float it would be off by 2^-54, and for an
    exponent of 0.1, say, so would be the slope, times the logarithm of the base.
    """
    low = number.low if isinstance(number, Precise) else 0.0
    exact = Fraction(float(number)) + Fraction(low) - 1
    high = float(exact)
    # The rest is a multiple of the number's last place and smaller than half of the last place of `high`: a float.
    return Precise(high, float(exact - Fraction(high))) if exact != Fraction(high) else high


LOG_2 = Irrational("log 2", 0.6931471805599453, 2.3190468138462996e-17)
LOG_10 = Irrational("log 10", 2.302585092994046, -2.1707562233822494e-16)
#: 2/√π, the slope of the error function at zero.
TWO_OVER_ROOT_PI = Irrational("2/sqrt(pi)", 1.1283791670955126, 1.533545961316588e-17)
