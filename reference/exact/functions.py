"""Elementary functions on mpmath's raw numbers, with the special values of IEEE 754."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from mpmath import libmp

from .. import gamma

#: mpmath's raw number, `formats.Raw`; mpmath itself is untyped.
Raw: TypeAlias = Any
Unary: TypeAlias = Callable[[Raw], Raw]
Binary: TypeAlias = Callable[[Raw, Raw], Raw]

#: Bits beyond the working precision for what is put together of several roundings.
_GUARD = 10


def _is_infinite(x: Raw) -> bool:
    return x in (libmp.finf, libmp.fninf)


def _where_real(function: Callable[..., Raw], bits: int) -> Unary:
    """The function, and NaN for arguments to which it gives no real number."""

    def real(x: Raw) -> Raw:
        try:
            return libmp.fnan if x == libmp.fnan else function(x, bits, "n")
        except libmp.ComplexResult:
            return libmp.fnan

    return real


def irrational(name: str, bits: int) -> Raw:
    """The constant of that name (`array.constants`) at a precision."""
    match name:
        case "log 2":
            return libmp.mpf_ln2(bits, "n")
        case "log 10":
            return libmp.mpf_ln10(bits, "n")
        case "2/sqrt(pi)":
            root = libmp.mpf_sqrt(libmp.mpf_pi(bits + _GUARD), bits + _GUARD, "n")
            return libmp.mpf_div(libmp.from_int(2), root, bits, "n")
    raise KeyError(name)


def _log2(x: Raw, bits: int) -> Raw:
    if x[1] == 1 and not x[0]:  # a power of two, whose logarithm is an integer without any rounding
        return libmp.from_int(x[2])
    return _log_to(x, irrational("log 2", bits + _GUARD), bits)


def _log_to(x: Raw, base: Raw, bits: int) -> Raw:
    if x == libmp.fzero:
        return libmp.fninf
    if x == libmp.fnan or libmp.mpf_sign(x) < 0:
        return libmp.fnan
    return libmp.mpf_div(libmp.mpf_log(x, bits + _GUARD, "n"), base, bits, "n")


def _cbrt(x: Raw, bits: int) -> Raw:
    if x == libmp.fnan or _is_infinite(x) or x == libmp.fzero:
        return x
    root = libmp.mpf_nthroot(libmp.mpf_abs(x), 3, bits, "n")
    return libmp.mpf_neg(root) if x[0] else root


def _arctan2(y: Raw, x: Raw, bits: int) -> Raw:
    """The angle of (x, y); of the four pairs of infinities it is an odd multiple of π/4, as IEEE 754 has it."""
    if libmp.fnan in (x, y):
        return libmp.fnan
    if _is_infinite(x) and _is_infinite(y):
        quarter = libmp.mpf_shift(libmp.mpf_pi(bits + _GUARD), -2)
        angle = quarter if x == libmp.finf else libmp.mpf_mul(quarter, libmp.from_int(3))
        return libmp.mpf_pos(angle if y == libmp.finf else libmp.mpf_neg(angle), bits, "n")
    return libmp.mpf_atan2(y, x, bits, "n")


def _hypot(a: Raw, b: Raw, bits: int) -> Raw:
    if _is_infinite(a) or _is_infinite(b):
        return libmp.finf
    return libmp.fnan if libmp.fnan in (a, b) else libmp.mpf_hypot(a, b, bits, "n")


def _fmod(a: Raw, b: Raw, bits: int) -> Raw:
    """What is left of `a` after multiples of `b`, with the sign of `a`."""
    if libmp.fnan in (a, b) or _is_infinite(a) or b == libmp.fzero:
        return libmp.fnan
    if _is_infinite(b):
        return a
    rest = libmp.mpf_mod(libmp.mpf_abs(a), libmp.mpf_abs(b), bits, "n")
    return libmp.mpf_neg(rest) if a[0] else rest


def log(x: Raw, bits: int) -> Raw:
    if x == libmp.fzero:
        return libmp.fninf
    return libmp.fnan if (libmp.mpf_sign(x) or 0) < 0 else libmp.mpf_log(x, bits, "n")


def log1p(x: Raw, bits: int) -> Raw:
    if x[1] and x[2] + x[3] < -3 * bits:  # x - x²/2, where 1 + x would have as many bits as x's exponent says
        return libmp.mpf_sub(x, libmp.mpf_shift(libmp.mpf_mul(x, x), -1), bits, "n")
    # 1 + x is exact here, so nothing cancels. Where x is large it need not be, and would have as many bits as its
    # exponent says.
    large = x[1] and x[2] + x[3] > bits
    return log(libmp.mpf_add(libmp.fone, x, bits + 4, "n") if large else libmp.mpf_add(libmp.fone, x), bits)


def _logaddexp(a: Raw, b: Raw, bits: int) -> Raw:
    """log(exp(a) + exp(b)), as max + log(1 + exp(−|a − b|))."""
    if libmp.fnan in (a, b):
        return libmp.fnan
    largest = a if libmp.mpf_ge(a, b) else b
    if _is_infinite(largest):
        return largest
    gap = libmp.mpf_neg(libmp.mpf_abs(libmp.mpf_sub(a, b)))
    return libmp.mpf_add(largest, log1p(libmp.mpf_exp(gap, bits + _GUARD, "n"), bits + _GUARD), bits, "n")


def power(x: Raw, exponent: Raw, bits: int) -> Raw:
    """IEEE 754's pow, for which mpmath raises errors in places; its one zero is taken to be +0."""
    if exponent == libmp.fzero or x == libmp.fone:
        return libmp.fone
    if libmp.fnan in (x, exponent):
        return libmp.fnan
    if _is_infinite(exponent):
        if x == libmp.fnone:
            return libmp.fone
        grows = libmp.mpf_gt(libmp.mpf_abs(x), libmp.fone) == (exponent == libmp.finf)
        return libmp.finf if grows else libmp.fzero
    # Mantissas of mpmath are odd, so an exponent is an integer exactly if its own binary exponent, item 2, is not
    # negative, and an odd one if that is 0.
    if x == libmp.fninf:
        size = power(libmp.finf, exponent, bits)
        return libmp.mpf_neg(size) if exponent[2] == 0 else size
    if x == libmp.fzero:
        return libmp.fzero if libmp.mpf_sign(exponent) > 0 else libmp.finf
    if x == libmp.finf:
        return libmp.finf if libmp.mpf_sign(exponent) > 0 else libmp.fzero
    if libmp.mpf_sign(x) < 0 and exponent[2] < 0:
        return libmp.fnan
    return libmp.mpf_pow(x, exponent, bits, "n")


def unary(bits: int) -> dict[str, Unary]:
    """The functions of one argument at a precision, by the names of primitives."""
    rounded: dict[str, Callable[..., Raw]] = {
        "sin": libmp.mpf_sin, "cos": libmp.mpf_cos, "tan": libmp.mpf_tan,
        "arctan": libmp.mpf_atan, "arcsin": libmp.mpf_asin, "arccos": libmp.mpf_acos,
        "sinh": libmp.mpf_sinh, "cosh": libmp.mpf_cosh,
        "arcsinh": libmp.mpf_asinh, "arccosh": libmp.mpf_acosh, "arctanh": libmp.mpf_atanh,
        "erf": libmp.mpf_erf, "erfc": libmp.mpf_erfc,
    }  # fmt: skip
    two = libmp.from_int(2)
    return {name: _where_real(function, bits) for name, function in rounded.items()} | {
        "arctanh": lambda x: _arctanh(x, bits),
        "exp2": lambda x: _exp2(two, x, bits),
        "log2": lambda x: _log2(x, bits),
        "log10": lambda x: _log_to(x, irrational("log 10", bits + _GUARD), bits),
        "cbrt": lambda x: _cbrt(x, bits),
        "floor": libmp.mpf_floor,
        "ceil": libmp.mpf_ceil,
        "rint": libmp.mpf_nint,
        "trunc": lambda x: libmp.mpf_ceil(x) if x[0] else libmp.mpf_floor(x),
        "sign": lambda x: x if x == libmp.fnan else libmp.from_int(libmp.mpf_sign(x)),
        "gammaln": lambda x: gamma.log_gamma(x, bits),
    }


def _arctanh(x: Raw, bits: int) -> Raw:
    if x[1] == 1 and x[2] == 0:  # at 1 and −1 mpmath's answer has the sign, and no error is raised
        return libmp.fninf if x[0] else libmp.finf
    return _where_real(libmp.mpf_atanh, bits)(x)


def _exp2(two: Raw, x: Raw, bits: int) -> Raw:
    if x == libmp.fnan or x == libmp.finf:
        return x
    return libmp.fzero if x == libmp.fninf else libmp.mpf_pow(two, x, bits, "n")


def binary(bits: int) -> dict[str, Binary]:
    """The functions of two arguments at a precision, by the names of primitives."""
    rounded = {"arctan2": _arctan2, "hypot": _hypot, "fmod": _fmod, "logaddexp": _logaddexp}
    return {name: functools.partial(function, bits=bits) for name, function in rounded.items()}
