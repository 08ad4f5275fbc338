"""The measurement of one shard: the errors of a function's results, in ulps, and the argument with the largest error.

The error of a result is |result - f(x)| over the ulp of f(x), as everywhere in opassay. An infinite result counts as
the power of two that follows the largest finite number, and so does a value beyond that number: a function that
overflows early or late has a finite error like any other. Results below the normal range are counted apart, because a
device that flushes them to zero has errors of millions of ulps there, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import gmpy2
import numpy as np
import numpy.typing as npt

from opassay.reference.formats import FORMATS, Format, ulp_array

from .functions import FUNCTIONS, ElementaryFunction, Wide
from .inputs import Bits, neighbours, patterns_of_shard
from .reading import is_exhaustive

if TYPE_CHECKING:
    import torch

#: Bits of MPFR's results: their own rounding error is 2^-147 ulp of the widest format.
_PRECISION = 200
#: The worst arguments of each part by the wider format whose errors MPFR computes; and the distance of arguments at
#: which MPFR checks the wider format.
_DECIDED, _CHECKED_EVERY = 32, 2**12
#: The largest mistake of an error by the wider format, in ulps of the measured format, by its bits. The wider format's
#: functions are within 8 of its own ulps, and it has 29 bits more than binary32, 11 more than binary64.
_UNSURE = {16: 2.0**-30, 32: 2.0**-25, 64: 2.0**-7}
_ROUNDS, _NEAR = 12, 2**14


@dataclass(frozen=True)
class LargestError:
    """The largest error among results of one kind, and where it is.

    Attributes:
        ulps: the error, by MPFR; -1 if there was no such result, infinite if only one of result and value is NaN.
        bits: the argument's bit pattern, hexadecimal.
        layout: of the argument's tensor, because vectorised code and code for single elements may differ.
    """

    ulps: float = -1.0
    bits: str = ""
    layout: str = ""


@dataclass(frozen=True)
class _Truth:
    """The function's values at the arguments of one part, by the wider format; arrays of that format.

    Attributes:
        arguments: of the part.
        values: of the function; those beyond the largest number are the power of two that follows it.
        ulps: the ulp of each value in the measured format.
        normal: which values are in the normal range; NaN counts as normal.
    """

    arguments: Wide
    values: Wide
    ulps: Wide
    normal: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ShardResult:
    """The measurement of one shard; its fields are those of a line of a log.

    Attributes:
        inputs: the number of arguments, each measured in every layout.
        misrounded: the number of results, in both layouts, with an error above half an ulp.
        normal, subnormal: the largest error of results in the normal range, and below it.
    """

    inputs: int
    misrounded: int
    normal: LargestError
    subnormal: LargestError


def measure(name: str, dtype: str, shard: int, device: str = "cpu") -> dict[str, Any]:
    """Measure one shard of one function: the data of a line of a log.

    Raises:
        ArithmeticError: the wider format is less accurate than this measurement needs.
    """
    function, fmt = FUNCTIONS[name], FORMATS[dtype]
    result = ShardResult(0, 0, LargestError(), LargestError())
    for bits in patterns_of_shard(dtype, shard):
        result = _with_part(result, function, fmt, bits, device)
    if not is_exhaustive(dtype):
        result = _climb(function, fmt, result, device, np.random.default_rng([shard, 1]))
    return {"function": name, "dtype": dtype, "device": device, "shard": shard, **asdict(result)}


def error_of(function: ElementaryFunction, fmt: Format, argument: float, result: float) -> float:
    """The exact error of one result in ulps; both numbers are values of the format."""
    with gmpy2.context(precision=_PRECISION):
        value = function.exact(gmpy2.mpfr(argument))
        if gmpy2.is_nan(value) or np.isnan(result):
            return 0.0 if gmpy2.is_nan(value) and np.isnan(result) else float("inf")
        largest = gmpy2.mpfr(2) ** (fmt.exponent_max + 1)
        value, output = (min(max(number, -largest), largest) for number in (value, gmpy2.mpfr(result)))
        exponent = gmpy2.frexp(value)[0] - 1 if value else fmt.exponent_min
        exponent = min(max(exponent, fmt.exponent_min), fmt.exponent_max)
        return float(abs(output - value) / gmpy2.mpfr(2) ** (exponent - fmt.precision + 1))


def _with_part(earlier: ShardResult, function: ElementaryFunction, fmt: Format, bits: Bits, device: str) -> ShardResult:
    """The earlier result of a shard, and the measurement of one more part, as one result."""
    import torch

    contiguous = torch.from_numpy(bits.view(f"i{fmt.bits // 8}")).view(getattr(torch, fmt.name)).to(device)
    truth = _truth(function, fmt, _wide(fmt, contiguous))
    misrounded, worst = earlier.misrounded, [earlier.normal, earlier.subnormal]
    for layout, tensor in layouts_of(contiguous).items():
        results = _wide(fmt, function.computed(tensor))
        errors = _errors(fmt, truth, results)
        _check(function, fmt, truth.arguments, results, errors)
        misrounded += int(np.count_nonzero(errors > 0.5))
        for kind, part in enumerate((truth.normal, ~truth.normal)):
            for place in _near_the_worst(fmt, errors, part, worst[kind].ulps):
                exact = error_of(function, fmt, float(truth.arguments[place]), float(results[place]))
                if exact > worst[kind].ulps:
                    worst[kind] = LargestError(exact, f"{int(bits[place]):0{fmt.bits // 4}x}", layout)
    return ShardResult(earlier.inputs + len(bits), misrounded, *worst)


def layouts_of(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """A tensor in each layout, by name: code for whole vectors, and for single elements."""
    import torch

    return {"contiguous": tensor, "strided": torch.stack([tensor, tensor], 1)[:, 0]}


def _wide(fmt: Format, tensor: torch.Tensor) -> Wide:
    values: npt.NDArray[np.float64] = tensor.double().cpu().numpy()
    return values.astype(np.longdouble) if fmt.bits == 64 else values


def _truth(function: ElementaryFunction, fmt: Format, arguments: Wide) -> _Truth:
    """The function's values at these arguments, by the wider format."""
    with np.errstate(all="ignore"):
        values = function.centre(arguments)
        largest = values.dtype.type(2) ** (fmt.exponent_max + 1)
        values = np.clip(values, -largest, largest)
        size = np.abs(values)
        # A long double that the cast to float64 rounds up to a power of two would have twice its ulp.
        narrow = size.astype(np.float64)
        narrow = np.where(narrow > size, np.nextafter(narrow, 0.0), narrow) if narrow.dtype != size.dtype else narrow
        return _Truth(arguments, values, ulp_array(fmt, narrow), ~(size < fmt.smallest_normal))


def _errors(fmt: Format, truth: _Truth, results: Wide) -> Wide:
    """The errors by the wider format, in ulps; infinite where one of result and value is NaN."""
    with np.errstate(all="ignore"):
        largest = truth.values.dtype.type(2) ** (fmt.exponent_max + 1)
        errors = np.abs(np.clip(results, -largest, largest) - truth.values) / truth.ulps
    if np.isnan(errors).any():
        alike = np.isnan(truth.values) == np.isnan(results)
        errors = np.where(np.isnan(errors), np.where(alike, 0.0, np.inf), errors)
    return errors


def _check(function: ElementaryFunction, fmt: Format, arguments: Wide, results: Wide, errors: Wide) -> None:
    """ArithmeticError unless the wider format's errors are those of MPFR, at evenly spread arguments of the part."""
    for index in range(0, len(arguments), _CHECKED_EVERY):
        exact = error_of(function, fmt, float(arguments[index]), float(results[index]))
        if not (exact == errors[index] or abs(exact - errors[index]) <= _unsure(fmt, exact)):
            raise ArithmeticError(
                f"sweep: the wider format gives an error of {float(errors[index])!r} ulp, MPFR one of {exact!r}, for "
                f"argument={float(arguments[index])!r}; need a difference of at most {_unsure(fmt, exact)} ulp"
            )


def _near_the_worst(fmt: Format, errors: Wide, mask: npt.NDArray[np.bool_], record: float) -> Sequence[int]:
    """Places of chosen errors that may be the largest, for MPFR to decide; none, if all are below the record."""
    largest = float(errors.max(initial=-1.0, where=mask))
    if largest < 0.0 or largest + _unsure(fmt, largest) <= record:
        return []
    near = mask & (errors >= largest - 2 * _unsure(fmt, largest))
    places: list[int] = np.flatnonzero(near)[:_DECIDED].tolist()
    return places


def _unsure(fmt: Format, error: float) -> float:
    # A large error is itself rounded to the wider format, so the mistake grows with it.
    return _UNSURE[fmt.bits] * max(1.0, abs(error)) if np.isfinite(error) else 0.0


def _climb(
    function: ElementaryFunction, fmt: Format, result: ShardResult, device: str, random: np.random.Generator
) -> ShardResult:
    """The result after a search near the worst arguments, at every distance, repeated from worse ones."""
    for _ in range(_ROUNDS):
        starts = [np.uint64(int(worst.bits, 16)) for worst in (result.normal, result.subnormal) if worst.bits]
        if not starts:
            return result
        result = _with_part(result, function, fmt, neighbours(np.array(starts), fmt, random, _NEAR), device)
    return result
