"""Elementwise primitives on mpmath's raw numbers, with IEEE 754's rules where mpmath raises."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from mpmath import libmp

from . import functions

#: mpmath's raw number, `formats.Raw`; mpmath itself is untyped.
Raw: TypeAlias = Any

DEFAULT_PRECISION = 200

# The precision in use is the last of this list; it is a stack because `precision` may be entered within itself.
_working = [DEFAULT_PRECISION]


@contextlib.contextmanager
def precision(bits: int) -> Iterator[None]:
    """Evaluate at `bits` of precision. Garbage collection waits: the numbers are many and have no cycles."""
    _working.append(bits)
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        _working.pop()
        if enabled:
            gc.enable()


def _quotient(a: Raw, b: Raw, bits: int) -> Raw:
    if b == libmp.fzero:  # the one zero is +0
        return {1: libmp.finf, -1: libmp.fninf}.get(libmp.mpf_sign(a) or 0, libmp.fnan)
    return libmp.mpf_div(a, b, bits, "n")


def _expm1(x: Raw, bits: int) -> Raw:
    lost = max(0, -(x[2] + x[3])) if x[1] else 0  # leading bits that e^x - 1 cancels
    return libmp.mpf_sub(libmp.mpf_exp(x, bits + lost + 4, "n"), libmp.fone, bits, "n")


def _sigmoid(x: Raw, bits: int) -> Raw:
    # The sum is rounded, because an exact one would have as many bits as the exponent of e^-x says.
    power = libmp.mpf_exp(libmp.mpf_neg(x), bits + 4, "n")
    return _quotient(libmp.fone, libmp.mpf_add(libmp.fone, power, bits + 4, "n"), bits)


# NaN is handed on, as by `np.maximum`: a NaN among the inputs must be seen in the output, and not lose a comparison.
def larger(a: Raw, b: Raw) -> Raw:
    if libmp.fnan in (a, b):
        return libmp.fnan
    return a if libmp.mpf_ge(a, b) else b


def _smaller(a: Raw, b: Raw) -> Raw:
    if libmp.fnan in (a, b):
        return libmp.fnan
    return a if libmp.mpf_le(a, b) else b


@functools.lru_cache(maxsize=16)
def primitives_at(bits: int) -> dict[str, Any]:
    """The elementwise primitives at a precision, as NumPy functions of object arrays."""
    add, sub, mul = libmp.mpf_add, libmp.mpf_sub, libmp.mpf_mul
    unary: dict[str, Callable[[Raw], Raw]] = {
        "negative": libmp.mpf_neg,
        "absolute": libmp.mpf_abs,
        "square": lambda x: mul(x, x, bits, "n"),
        "sqrt": lambda x: libmp.fnan if x[0] else libmp.mpf_sqrt(x, bits, "n"),
        "exp": lambda x: libmp.mpf_exp(x, bits, "n"),
        "expm1": lambda x: _expm1(x, bits),
        "log": lambda x: functions.log(x, bits),
        "log1p": lambda x: functions.log1p(x, bits),
        "tanh": lambda x: libmp.mpf_tanh(x, bits, "n"),
        "sigmoid": lambda x: _sigmoid(x, bits),
    }
    binary: dict[str, Callable[[Raw, Raw], Raw]] = {
        "add": lambda a, b: add(a, b, bits, "n"),
        "subtract": lambda a, b: sub(a, b, bits, "n"),
        "multiply": lambda a, b: mul(a, b, bits, "n"),
        "divide": lambda a, b: _quotient(a, b, bits),
        "power": lambda a, b: functions.power(a, b, bits),
        "float_power": lambda a, b: functions.power(a, b, bits),
        "attach": lambda a, b: a,
        "maximum": larger,
        "minimum": _smaller,
    }
    table = {name: np.frompyfunc(f, 1, 1) for name, f in (unary | functions.unary(bits)).items()}
    both = binary | functions.binary(bits)
    return table | {name: np.frompyfunc(f, 2, 1) for name, f in both.items()}


def bits_in_use() -> int:
    """The working precision."""
    return _working[-1]
