"""The contract of an evaluation: what an implementation may do, and so how far its outputs may be off.

For values and first derivatives it is proven that the bound holds for every evaluation of a declared algorithm, where
derivatives are evaluated as reverse or forward mode of the formula reads (a sigmoid's slope: from its result). For
higher orders the bound rests on a heuristic, `Contract.roundings`: no proof relates the error of a closed form to the
error of the formula after it was differentiated twice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...reference.array import STORAGE
from ...reference.formats import BINARY32, BINARY64, FORMATS, Format, round_array
from .trees import ANY, Tree

#: Name of an algorithm of the exponential: exp(x) as 2^(x log2 e), with a rounded exponent.
EXP2 = "exp2"
#: Name of an algorithm of log_softmax, and so of cross entropy: x − lse, of a log-sum-exp that is kept.
LOG_SUM = "lse"
#: Name of an algorithm of attention: queries and keys are scaled, each by the root of the scale, before they meet.
SCALED = "scaled"

#: Documented largest errors of elementary functions in ulps: glibc and SLEEF vector maths on CPUs, and
#: CUDA's single precision tables (CUDA C++ Programming Guide, mathematical functions). Those are counted from the
#: correctly rounded result, so half an ulp is added here; on an H100, over all float32 numbers, torch's expm1, cosh,
#: arctanh, exp2, log10 and erfc do need it (docs/h100.md). IEEE 754 asks for roots that are
#: correctly rounded, but torch takes roots of contiguous tensors from MKL's vector maths, which documents less than
#: 1 ulp for its mode of high accuracy. Over all 2^24 float32 numbers from 1 to 4, torch 2.13 on an AMD EPYC rounds 17 %
#: to another number, the worst by 0.75 ulp; in float64 1.3 % of random ones, by 0.53.
#: The sigmoid is 1 / (1 + exp(−x)), which is off by 4u of its value at most: twice u for the exponential, and two
#: roundings. In ulps that is up to 4; the largest that torch shows on 4 million float32 numbers is 2.43, and on an H100
#: on all of them 3.43.
#: The others of torch on CPUs are SLEEF's of 1.0 ulp and MKL's of less than 1, or made of those; what they show on all
#: float32 numbers and in the half formats stands in docs/functions.md. torch computes sinh and its like from
#: exponentials and logarithms where it takes single elements, up to 1.9 ulp, and arccosh of float32 numbers is off by
#: 2.0002 at most; log(exp(a) + exp(b)) has no row, because its error is that of the parts. NumPy's cube root and
#: length of two numbers are C's (glibc manual, known maximum errors: at most 1 ulp, of which its cube root of float32
#: numbers shows 1.93).
CPU_FUNCTIONS: Mapping[str, float] = {
    "sqrt": 1.0, "exp": 1.0, "expm1": 1.0, "log": 1.0, "log1p": 1.0, "tanh": 1.0, "power": 1.0,
    "sigmoid": 3.0, "sin": 1.0, "cos": 1.0, "tan": 1.0, "arcsin": 1.0, "arccos": 1.0, "arctan": 1.0,
    "sinh": 2.0, "cosh": 2.0, "arcsinh": 2.0, "arccosh": 2.5, "arctanh": 2.0,
    "exp2": 1.0, "log2": 1.0, "log10": 1.0, "cbrt": 2.0, "erf": 1.0, "erfc": 1.5, "arctan2": 1.0, "hypot": 1.0,
}  # fmt: skip
CUDA_FUNCTIONS: Mapping[str, float] = {
    "sqrt": 1.5, "exp": 2.5, "expm1": 1.5, "log": 1.5, "log1p": 1.5, "tanh": 2.5, "power": 4.5,
    "sigmoid": 4.0, "sin": 2.5, "cos": 2.5, "tan": 4.5, "arcsin": 2.5, "arccos": 2.5, "arctan": 2.5,
    "sinh": 3.5, "cosh": 2.5, "arcsinh": 3.5, "arccosh": 4.5, "arctanh": 3.5,
    "exp2": 2.5, "log2": 1.5, "log10": 2.5, "cbrt": 1.5, "erf": 2.5, "erfc": 4.5, "arctan2": 3.5, "hypot": 3.5,
}  # fmt: skip
#: NumPy's and XLA's on CPUs, which differ from torch's: what `benchmarks/library_functions.py` shows in float32 (NumPy
#: 2.4.6, jax 0.10.2; AVX512), rounded up, and torch's number where that is larger or nothing was measured.
NUMPY_FUNCTIONS: Mapping[str, float] = {
    **CPU_FUNCTIONS, "exp": 3.0, "expm1": 3.0, "log": 4.0, "log1p": 2.0, "tanh": 2.0, "sin": 2.0, "cos": 2.0,
    "exp2": 3.0, "log2": 3.0, "log10": 4.0, "cosh": 3.0, "arctan": 3.0, "sigmoid": 5.0,
}  # fmt: skip
XLA_FUNCTIONS: Mapping[str, float] = {
    **CPU_FUNCTIONS, "exp": 6.0, "expm1": 6.0, "log": 2.0, "log1p": 3.0, "tanh": 5.0, "exp2": 68.0, "log2": 3.0,
    "log10": 3.0, "sinh": 25.0, "cosh": 25.0, "erf": 6.0,
}  # fmt: skip
#: What Triton's compiler makes of a function: CUDA's library, and a sigmoid of an exponential of 2.5 ulp, a sum, and a
#: quotient of 2.5 ulp. torch's numbers where those are larger, because torch computes a spec, too.
TRITON_FUNCTIONS: Mapping[str, float] = {
    **{name: max(ulps, CPU_FUNCTIONS[name]) for name, ulps in CUDA_FUNCTIONS.items()}, "sigmoid": 7.0,
}  # fmt: skip
#: The name of that table.
TRITON = "triton"
#: The tables of libraries, by the name that terms have for them.
LIBRARIES: Mapping[str, Mapping[str, float]] = {
    "numpy": NUMPY_FUNCTIONS, "xla": XLA_FUNCTIONS, TRITON: TRITON_FUNCTIONS,
}  # fmt: skip
#: Errors that approximations have whatever the size of the result, in units of u of binary32. torch's vectorised GELU
#: takes erf from Abramowitz and Stegun 7.1.26, which is off by 1.5e-7 (2.5 u) on paper; with its roundings 1 + erf is
#: off by 11.6 u on a million float32 numbers (torch 2.13, AVX512).
CPU_ABSOLUTE: Mapping[str, float] = {"erf": 12.0}


#: How far an evaluation may scale an intermediate on its way (n x − Σx for x − mean, a product in another order): so
#: much closer to the formula come overflow, beyond which nothing is judged, and underflow.
SCALING = 2.0**12


@dataclass(frozen=True)
class Functions:
    """The errors of elementary functions.

    Attributes:
        ulps: the largest error of each, in ulps.
        absolute: error of a function's cheap approximation whatever the size of its result, in units of u of the
            accumulate format; it counts where a spec uses the function so (`reference.array.erf`).
        division: roundings of a quotient: two where it is a product with the rounded reciprocal.
    """

    ulps: Mapping[str, float]
    absolute: Mapping[str, float] = field(default_factory=dict)
    division: float = 2.0


@dataclass(frozen=True)
class Accumulators:
    """How a tensor core adds up products of eight-bit numbers.

    An instruction adds some products to an accumulator. All of these are shifted to the exponent of the largest one,
    and what lies below the last bit is cut off; so is what the sum has below it.

    Attributes:
        bits: behind the leading one. group: products of an instruction.
        chunk: products after which an accumulator is added to a sum in the accumulate format; 0 for all of them.
    """

    bits: int
    group: int
    chunk: int

    def share(self, terms: int) -> float:
        """A bound on the error of a sum of so many products, as a share of the sum of their magnitudes S.

        Each of the addends of an instruction, and its sum, lose less than one last bit: 2^-bits of the largest addend
        or of the sum, neither of which is larger than S and the errors so far. So S grows by the factor
        1 + (group + 2) 2^-bits in each instruction.
        """
        products = min(self.chunk or terms, terms)
        growth = (self.group + 2) * 2.0**-self.bits
        return math.expm1(math.ceil(products / self.group) * math.log1p(growth))


@dataclass(frozen=True)
class Products:
    """How factors and sums of products of matrices may be rounded.

    Attributes:
        factors: relative error of each factor, on top of the accumulate format's: 2^-11 where factors are rounded to
            TF32. narrow: the format of such factors, where its range is narrower than that of the accumulate format;
            None where it is not.
        partials: format in which partial sums may be stored; None for that of accumulation.
        sums: how many times as far off sums may be as those of one rounding for each product: `TENSOR_SUMS`.
        accumulators: of products of eight-bit numbers; None for the accumulate format.
    """

    factors: float = 0.0
    narrow: Format | None = None
    partials: Format | None = None
    accumulators: Accumulators | None = None
    sums: float = 1.0


#: The error of sums by tensor cores, in units of that of a rounding for each product. Each of k products, and what was
#: summed before, loses less than a digit of weight 2u of the largest addend when it is cut off behind 24 digits, and so
#: does the sum (M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, PeerJ Computer Science 7, 2021). k + 1 such cuts for k
#: products are 2 (1 + 1/k) u for each, and k is 4 at least.
TENSOR_SUMS = 2.5


@dataclass(frozen=True, eq=False)
class Contract:
    """What an evaluation may do: the format that it accumulates in, and the errors of its elementary functions.

    Attributes:
        accumulate: format of every intermediate.
        stores: format of stored intermediates (`reference.array.store`).
        functions, products: see those records.
        intermediates: whether an evaluation of a spec may store every intermediate in the dtype that the spec has
            there, and not only those that the spec casts.
        tree: along which sums and products are added up.
        lattice: whether results are exact that are integers times a power of two and fit the format
            (`rounding.lattice`). An evaluation that folds constants does not keep to it.
        flush: whether subnormal operands and results may become zero.
        algorithms: names of further algorithms of elementary functions that an evaluation may use: EXP2.
        others: whether a formula's other algorithms count, or its own text alone, whose balls are narrower.
        systematic: whether errors count that may be the same in every sample: the roundings of constants and of their
            reciprocals, the side of a comparison that rounding leaves open, the slope at a kink. A reading without them
            tells what of a bound is no evidence of a bias.
        roundings: of an evaluation per operation of the reading. Values and first derivatives are evaluated as the
            formula and its reverse or forward mode read, one for one. Higher orders are evaluated from closed forms,
            whose product rules repeat factors: twice as many with each order. That factor is a heuristic, not a
            theorem.
    """

    accumulate: Format
    stores: Format
    functions: Functions = field(default_factory=lambda: Functions(CPU_FUNCTIONS))
    products: Products = field(default_factory=Products)
    intermediates: bool = False
    tree: Tree = ANY
    lattice: bool = False
    flush: bool = False
    algorithms: frozenset[str] = frozenset()
    others: bool = True
    systematic: bool = True
    roundings: float = 1.0

    @functools.cached_property
    def on_lattice(self) -> Contract:
        """The same contract for data of which results are exact."""
        return replace(self, lattice=True)

    def stored_in(self, dtype: str) -> Format:
        """The format that `reference.array.store` names: its own, or that of storage."""
        return self.stores if dtype in ("", STORAGE) else FORMATS[dtype]

    def may_store(self, fmt: Format) -> bool:
        """Whether an evaluation may store an intermediate in a format that rounds it."""
        return self.intermediates and fmt.precision < self.accumulate.precision

    @functools.cached_property
    def roundoff(self) -> float:
        """The relative error that an operation may add."""
        return self.accumulate.unit_roundoff * self.roundings

    @property
    def division(self) -> float:
        return self.functions.division

    @functools.cached_property
    def centre_type(self) -> Any:
        """float64 below binary64; for binary64 the machine's widest float, so that centres cost little there."""
        return np.longdouble if self.accumulate.precision >= BINARY64.precision else np.float64

    @functools.cached_property
    def centre_roundoff(self) -> float:
        return float(np.finfo(self.centre_type).eps) / 2

    @functools.cached_property
    def underflow(self) -> float:
        # An evaluation that scales an intermediate down loses up to η by underflow, or a whole subnormal number where
        # the contract flushes. When the evaluation scales the result up again, the loss grows by the same factor.
        return (self.accumulate.smallest_normal if self.flush else self.accumulate.eta) * SCALING

    @functools.cached_property
    def limit(self) -> float:
        """The largest intermediate that no evaluation turns into an infinity."""
        return self.accumulate.max / SCALING

    def rounding_of(self, constants: Any) -> Any:
        """A bound on the rounding of each constant of a formula to the accumulate format; None if it rounds none.

        Args:
            constants: an array of the type of centres.
        """
        fmt = self.accumulate
        size = np.abs(constants).astype(np.float64)
        fits = round_array(fmt, size) == size
        if fits.all() and not self.flush:
            return None
        rounded = np.where(fits, 0.0, np.maximum(size * fmt.unit_roundoff, fmt.eta))
        flushed = np.where(self.flush & (size < fmt.smallest_normal), size, 0.0)
        return np.where(np.isfinite(size), np.maximum(rounded, flushed), 0.0)

    def error_of_limit(self, function: str) -> float:
        """The relative error of a function at an infinity: 0 but where its limit has to be rounded, as π/2."""
        ulps = self.functions.ulps[function] if function in ("arctan", "arctan2") else 0.0
        return 2.0 * ulps * self.roundoff + (self.centre_roundoff if ulps else 0.0)

    def error_of_sum(self, terms: int) -> float:
        """The error of a sum and of its centre, which is added up in any order, as a share of the terms' magnitudes."""
        return self.tree.error(terms, self.roundoff) + (terms - 1) * self.centre_roundoff

    def holds(self, value: float) -> bool:
        """Whether the accumulate format holds a value without rounding it; overflow is for the caller to rule out."""
        if value == 0 or not math.isfinite(value):
            return True
        # `frexp` gives a mantissa below 1, which becomes an integer times 2^p exactly if p bits hold it. Subnormal
        # numbers have fewer bits than p, so they are not credited, whatever their mantissa.
        mantissa = abs(math.frexp(value)[0]) * 2.0**self.accumulate.precision
        return mantissa == int(mantissa) and abs(value) >= self.accumulate.smallest_normal


@functools.lru_cache(maxsize=64)
def contract(
    dtype: str, device: str = "cpu", order: int = 0, *, flush: bool = False, algorithms: frozenset[str] = frozenset()
) -> Contract:
    """The contract of a dtype (torch's name) and an order of derivatives; half types accumulate in binary32.

    That is torch's own rule for them (opmath).

    Args:
        dtype, device: where arithmetic is done, and in what; "cuda" also for kernels on a CPU.
        order: of the derivative. flush, algorithms: see `Contract`.
    """
    stores = FORMATS[dtype]
    accumulate = stores if stores.precision >= BINARY32.precision else BINARY32
    absolute = CPU_ABSOLUTE if device != "cuda" and accumulate is BINARY32 else {}
    functions = Functions(CUDA_FUNCTIONS if device == "cuda" else CPU_FUNCTIONS, absolute)
    roundings = 2.0 ** max(order - 1, 0)
    return Contract(accumulate, stores, functions, flush=flush, algorithms=algorithms, roundings=roundings)
