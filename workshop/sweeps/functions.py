"""The elementary functions that are swept: as torch computes them, in a wider format, and exactly.

What is hard here: the exact values at four billion arguments. MPFR rounds correctly, and takes microseconds for an
argument; a function of NumPy in a wider format takes nanoseconds, and its own error is negligible in ulps of the narrow
format. So the wider format finds the worst arguments, and MPFR computes their errors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gmpy2
import numpy as np
import numpy.typing as npt

from opassay.oracles.bound.rounding.functions import erf_centre, erfc_centre

if TYPE_CHECKING:
    import torch

Wide = npt.NDArray[np.floating[Any]]

#: Exponents of `power` in sweeps: those of local response normalisation and its derivatives, and a larger one.
EXPONENTS = (0.75, -0.75, -1.75, 2.5)


@dataclass(frozen=True)
class ElementaryFunction:
    """One function of one argument.

    Attributes:
        computed: the measured function, from a tensor to a tensor.
        centre: the same in NumPy, for arrays of a wider format.
        exact: the same for a number of MPFR, rounded in the precision of MPFR's context.
        contract: its name in the contract's tables; a function that is in none is not compared with a contract.
    """

    computed: Callable[[torch.Tensor], torch.Tensor]
    centre: Callable[[Wide], Wide]
    exact: Callable[[Any], Any]
    contract: str


def _function_of_torch(
    name: str, centre: Callable[[Wide], Wide] | None = None, exact: Any = None
) -> ElementaryFunction:
    # `torch` is imported when the function is called, because the command line lists these names and never runs torch.
    def computed(arguments: torch.Tensor) -> torch.Tensor:
        import torch

        result: torch.Tensor = getattr(torch, name)(arguments)
        return result

    # NumPy's names of inverse functions are longer than MPFR's: arcsin is asin there.
    exactly = getattr(gmpy2, name.replace("arc", "a")) if exact is None else exact
    return ElementaryFunction(computed, getattr(np, name) if centre is None else centre, exactly, name)


def _to_the_power(exponent: float) -> ElementaryFunction:
    def computed(base: torch.Tensor) -> torch.Tensor:
        return base.pow(exponent)

    def exact(base: Any) -> Any:
        # C's and torch's power of an infinite or zero base is IEEE 754's, which MPFR computes, too.
        return base ** gmpy2.mpfr(exponent)

    return ElementaryFunction(computed, lambda base: np.power(base, base.dtype.type(exponent)), exact, "power")


def _of_mpfr(exactly: Callable[[Any], Any], in_float64: Callable[[Wide], Wide]) -> Callable[[Wide], Wide]:
    """A function that NumPy does not have, for arrays of a wider format: `in_float64`, or MPFR's for long doubles.

    `in_float64` is within a few ulps.
    """
    in_parts: Any = np.frompyfunc(functools.partial(_in_parts, exactly), 1, 3)

    def centre(arguments: Wide) -> Wide:
        if arguments.dtype == np.float64:
            return np.asarray(in_float64(arguments))
        high, low, exponents = in_parts(arguments.astype(np.float64))
        wide = arguments.dtype.type
        # Both parts lie near one, where nothing is subnormal, until the power of two is put back.
        return np.asarray(np.ldexp(high.astype(wide) + low.astype(wide), exponents.astype(np.int64)))

    return centre


def _in_parts(exactly: Callable[[Any], Any], argument: float) -> tuple[float, float, int]:
    """A function's value as (high + low) x 2^exponent, to twice float64's precision."""
    with gmpy2.context(precision=120):
        value = exactly(gmpy2.mpfr(argument))
        if not gmpy2.is_finite(value) or not value:
            return float(value), 0.0, 0
        exponent, mantissa = gmpy2.frexp(value)
        return float(mantissa), float(mantissa - float(mantissa)), int(exponent)


def _of_numpy(name: str) -> ElementaryFunction:
    """A function that torch does not have, as NumPy computes it; half types are computed in float32."""

    def computed(arguments: torch.Tensor) -> torch.Tensor:
        import torch

        wide = arguments.float() if arguments.element_size() == 2 else arguments
        with np.errstate(invalid="ignore"):  # a signalling NaN
            result = getattr(np, name)(wide.cpu().numpy())
        return torch.from_numpy(result).to(arguments.device, arguments.dtype)

    return ElementaryFunction(computed, getattr(np, name), getattr(gmpy2, name), name)


def _sigmoid_exactly(number: Any) -> Any:
    return 1 / (1 + gmpy2.exp(-number))


FUNCTIONS: dict[str, ElementaryFunction] = {
    **{
        name: _function_of_torch(name)
        for name in ("sqrt", "exp", "expm1", "log", "log1p", "tanh", "exp2", "log2", "sin", "cos")
    },
    "rsqrt": _function_of_torch("rsqrt", lambda numbers: 1 / np.sqrt(numbers), lambda number: 1 / gmpy2.sqrt(number)),
    "reciprocal": _function_of_torch("reciprocal", lambda numbers: 1 / numbers, lambda number: 1 / number),
    "sigmoid": _function_of_torch("sigmoid", lambda numbers: 1 / (1 + np.exp(-numbers)), _sigmoid_exactly),
    "erf": _function_of_torch("erf", _of_mpfr(gmpy2.erf, erf_centre)),
    "erfc": _function_of_torch("erfc", _of_mpfr(gmpy2.erfc, erfc_centre)),
    **{name: _function_of_torch(name) for name in ("tan", "sinh", "cosh", "log10")},
    **{name: _function_of_torch(name) for name in ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh")},
    "cbrt": _of_numpy("cbrt"),
    **{f"power:{exponent}": _to_the_power(exponent) for exponent in EXPONENTS},
}
