"""Irrational constants, which each reading takes to its own precision."""

from __future__ import annotations


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


LOG_2 = Irrational("log 2", 0.6931471805599453, 2.3190468138462996e-17)
LOG_10 = Irrational("log 10", 2.302585092994046, -2.1707562233822494e-16)
#: 2/√π, the slope of the error function at zero.
TWO_OVER_ROOT_PI = Irrational("2/sqrt(pi)", 1.1283791670955126, 1.533545961316588e-17)
