"""The measurement of one shard: how far a function's results are off, in ulps, and the argument that is worst.

The error of a result is |result - f(x)| over the ulp of f(x), as everywhere in opassay. An infinite result stands for
the power of two that follows the largest finite number, and so does a value beyond it: a function that overflows early
or late has a finite error like any other. Results below the normal range are counted apart, because a device that
flushes them to zero is off by millions of ulps there and nowhere else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import gmpy2
import numpy as np
import numpy.typing as npt

from ...reference.formats import FORMATS, Format
from .functions import FUNCTIONS, Function, Wide
from .inputs import Bits, arguments, is_exhaustive, neighbours

if TYPE_CHECKING:
    import torch

#: Bits of MPFR's results: their own rounding error is 2^-147 ulp of the widest format.
_PRECISION = 200
#: The worst arguments by the wider format that MPFR decides, and those of each part that check the wider format.
_DECIDED, _CHECKED = 32, 64
#: How far the wider format's error may be off, in ulps of the measured format. Its functions are within 8 of its own
#: ulps, and it has 29 bits more than binary32, 11 more than binary64.
_UNSURE = {16: 2.0**-30, 32: 2.0**-25, 64: 2.0**-7}
_ROUNDS, _NEAR = 12, 2**14
_LAYOUTS = ("contiguous", "strided")


@dataclass(frozen=True)
class Worst:
    """The largest error among results of one kind, and where it is.

    Attributes:
        ulps: the error, by MPFR; -1 where there was no such result, infinite where one of result and value is NaN.
        bits: the argument's bit pattern, hexadecimal.
        layout: that of the tensor the argument stood in: vectorised code and the code for single elements may differ.
    """

    ulps: float = -1.0
    bits: str = ""
    layout: str = ""


@dataclass(frozen=True)
class Measured:
    """What one shard showed.

    Attributes:
        inputs: arguments measured, in each layout.
        misrounded: results, in both layouts, that are further than half an ulp from the value.
        normal, subnormal: the worst of the results in the normal range, and of those below it.
    """

    inputs: int
    misrounded: int
    normal: Worst
    subnormal: Worst


def measure(name: str, dtype: str, shard: int, device: str = "cpu") -> dict[str, Any]:
    """One shard of one function, as the log keeps it.

    Raises:
        ArithmeticError: the wider format is less accurate than this measurement needs.
    """
    function, fmt = FUNCTIONS[name], FORMATS[dtype]
    found: Measured | None = None
    for bits in arguments(dtype, shard):
        found = _of_both(found, _part(function, fmt, bits, device))
    assert found is not None, "a shard has one part at least"
    if not is_exhaustive(dtype):
        found = _climbed(function, fmt, found, device, np.random.default_rng([shard, 1]))
    return {"function": name, "dtype": dtype, "device": device, "shard": shard, **asdict(found)}


def error_of(function: Function, fmt: Format, argument: float, result: float) -> float:
    """The exact error of one result in ulps; both numbers are values of the format."""
    with gmpy2.context(precision=_PRECISION):
        value = function.exact(gmpy2.mpfr(argument))
        if gmpy2.is_nan(value) or np.isnan(result):
            return 0.0 if gmpy2.is_nan(value) and np.isnan(result) else float("inf")
        largest = gmpy2.mpfr(2) ** (fmt.exponent_max + 1)
        value, given = (min(max(number, -largest), largest) for number in (value, gmpy2.mpfr(result)))
        exponent = gmpy2.frexp(value)[0] - 1 if value else fmt.exponent_min
        exponent = min(max(exponent, fmt.exponent_min), fmt.exponent_max)
        return float(abs(given - value) / gmpy2.mpfr(2) ** (exponent - fmt.precision + 1))


def _part(function: Function, fmt: Format, bits: Bits, device: str) -> Measured:
    found: Measured | None = None
    for layout in _LAYOUTS:
        given, results = _computed(function, fmt, bits, device, layout)
        errors, normal = _errors(function, fmt, given, results)
        _check(function, fmt, given, results, errors)
        worst = [
            _worst(function, fmt, bits, given, results, np.where(chosen, errors, -1.0), layout)
            for chosen in (normal, ~normal)
        ]
        found = _of_both(found, Measured(len(bits), int((errors > 0.5).sum()), *worst))
    assert found is not None
    return Measured(len(bits), found.misrounded, found.normal, found.subnormal)


def _computed(function: Function, fmt: Format, bits: Bits, device: str, layout: str) -> tuple[Wide, Wide]:
    """Arguments and results, as values of the wider format."""
    import torch

    tensor = torch.from_numpy(bits.view(f"i{fmt.bits // 8}")).view(getattr(torch, fmt.name)).to(device)
    if layout == "strided":
        tensor = torch.stack([tensor, tensor], 1)[:, 0]
    return _wide(fmt, tensor), _wide(fmt, function.computed(tensor))


def _wide(fmt: Format, tensor: torch.Tensor) -> Wide:
    values: npt.NDArray[np.float64] = tensor.double().cpu().numpy()
    return values.astype(np.longdouble) if fmt.bits == 64 else values


def _errors(function: Function, fmt: Format, given: Wide, results: Wide) -> tuple[Wide, npt.NDArray[np.bool_]]:
    """The errors by the wider format, and which results should be in the normal range."""
    with np.errstate(all="ignore"):
        values = function.centre(given)
        largest = values.dtype.type(2) ** (fmt.exponent_max + 1)
        nan = np.isnan(values), np.isnan(results)
        value, result = np.clip(values, -largest, largest), np.clip(results, -largest, largest)
        exponents = np.frexp(value)[1] - 1
        exponents = np.clip(np.where(value == 0, fmt.exponent_min, exponents), fmt.exponent_min, fmt.exponent_max)
        errors = np.abs(result - value) * np.ldexp(value.dtype.type(1), fmt.precision - 1 - exponents)
    errors = np.where(nan[0] & nan[1], 0.0, np.where(nan[0] | nan[1], np.inf, errors))
    return errors, np.abs(np.where(nan[0], largest, value)) >= 2.0**fmt.exponent_min


def _check(function: Function, fmt: Format, given: Wide, results: Wide, errors: Wide) -> None:
    """That the wider format's errors are MPFR's, for some arguments of the part, evenly spread."""
    for index in range(0, len(given), max(1, len(given) // _CHECKED)):
        exact = error_of(function, fmt, _argument(given, index), _argument(results, index))
        if not (exact == errors[index] or abs(exact - errors[index]) <= _unsure(fmt, exact)):
            raise ArithmeticError(
                f"sweep: the wider format gives an error of {float(errors[index])!r} ulp, MPFR one of {exact!r}, for "
                f"argument={_argument(given, index)!r}; need a difference of at most {_unsure(fmt, exact)} ulp"
            )


def _worst(function: Function, fmt: Format, bits: Bits, given: Wide, results: Wide, errors: Wide, layout: str) -> Worst:
    """The largest of these errors, decided by MPFR.

    Args:
        function, fmt: what was computed, and in which format.
        bits, given, results: the arguments' patterns and values, and what came of them.
        errors: by the wider format; negative for those that are not asked for.
        layout: that of the tensor.
    """
    largest = float(errors.max(initial=-1.0))
    if largest < 0.0:
        return Worst()
    near = np.flatnonzero(errors >= largest - 2 * _unsure(fmt, largest))[:_DECIDED]
    exact = [error_of(function, fmt, _argument(given, index), _argument(results, index)) for index in near]
    best = int(np.argmax(exact))
    return Worst(exact[best], f"{int(bits[near[best]]):0{fmt.bits // 4}x}", layout)


def _unsure(fmt: Format, error: float) -> float:
    # A large error is rounded itself: it is a number of the wider format, too.
    return _UNSURE[fmt.bits] * max(1.0, abs(error)) if np.isfinite(error) else 0.0


def _argument(values: Wide, index: int) -> float:
    return float(values[index])


def _of_both(one: Measured | None, other: Measured) -> Measured:
    if one is None:
        return other
    return Measured(
        one.inputs + other.inputs,
        one.misrounded + other.misrounded,
        max(one.normal, other.normal, key=lambda worst: worst.ulps),
        max(one.subnormal, other.subnormal, key=lambda worst: worst.ulps),
    )


def _climbed(function: Function, fmt: Format, found: Measured, device: str, random: np.random.Generator) -> Measured:
    """A search from the worst argument that is known: neighbours at every distance, and again from a worse one."""
    for _ in range(_ROUNDS):
        starts = [np.uint64(int(worst.bits, 16)) for worst in (found.normal, found.subnormal) if worst.bits]
        if not starts:
            return found
        found = _of_both(found, _part(function, fmt, neighbours(np.array(starts), fmt, random, _NEAR), device))
    return found
