"""The contract of an evaluation: which roundings an implementation may make, from which the bound of its error follows.

For values and first derivatives there is a proof that the bound holds for every evaluation of a declared algorithm, if
derivatives are evaluated as in reverse or forward mode of the formula (a sigmoid's slope: from its result). For
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
#: Name of an algorithm of log_softmax, and so of cross entropy: x − lse, with a log-sum-exp that is rounded first.
LOG_SUM = "lse"
#: Name of an algorithm of attention: queries and keys are multiplied by the root of the scale before their product.
SCALED = "scaled"

#: Name of an allowance: NaNs and infinities among the operands may reach more elements than in the spec, or fewer.
SPREAD = "spread"

#: Documented largest errors of elementary functions in ulps: glibc and SLEEF vector maths on CPUs, and CUDA's single
#: precision tables (CUDA C++ Programming Guide, mathematical functions). CUDA's errors are relative to the correctly
#: rounded result, so half an ulp is added here; on an H100, over all float32 numbers, torch's expm1, cosh, arctanh,
#: exp2, log10 and erfc do need it (docs/h100.md). IEEE 754 requires correctly rounded square roots, but torch takes
#: square roots of contiguous tensors from MKL's vector maths, whose mode of high accuracy documents less than 1 ulp.
#: Over all 2^24 float32 numbers from 1 to 4, torch 2.13 on an AMD EPYC rounds 17 % to another number, the worst by
#: 0.75 ulp; in float64 1.3 % of random ones, by 0.53.
#: The sigmoid is 1 / (1 + exp(−x)), whose relative error is at most 4u: twice u for the exponential, and two roundings.
#: That is up to 4 ulp. The largest error measured in torch is 2.43 ulp on 4 million float32 numbers, and on an H100
#: 3.43 ulp on all float32 numbers.
#: torch's other functions on CPUs are SLEEF's of 1.0 ulp and MKL's of less than 1 ulp, or are composed of these; their
#: errors measured on all float32 numbers and in the half formats are in docs/functions.md. For single elements torch
#: computes sinh and similar functions from exponentials and logarithms, with errors up to 1.9 ulp; the error of
#: arccosh of float32 numbers is at most 2.0002 ulp. log(exp(a) + exp(b)) has no row, because its error is that of its
#: parts. NumPy's cbrt and hypot are those of C (glibc manual, known maximum errors: at most 1 ulp, but its cube root
#: of float32 numbers has an error of up to 1.93).
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
#: Errors of NumPy's and XLA's functions on CPUs, which differ from torch's: the largest that
#: `benchmarks/library_functions.py` measures in float32 (NumPy 2.4.6, jax 0.10.2; AVX512), rounded up. Torch's number
#: stands where it is larger or where nothing was measured.
NUMPY_FUNCTIONS: Mapping[str, float] = {
    **CPU_FUNCTIONS, "exp": 3.0, "expm1": 3.0, "log": 4.0, "log1p": 2.0, "tanh": 2.0, "sin": 2.0, "cos": 2.0,
    "exp2": 3.0, "log2": 3.0, "log10": 4.0, "cosh": 3.0, "arctan": 3.0, "sigmoid": 5.0,
}  # fmt: skip
XLA_FUNCTIONS: Mapping[str, float] = {
    **CPU_FUNCTIONS, "exp": 6.0, "expm1": 6.0, "log": 2.0, "log1p": 3.0, "tanh": 5.0, "exp2": 68.0, "log2": 3.0,
    "log10": 3.0, "sinh": 25.0, "cosh": 25.0, "erf": 6.0,
}  # fmt: skip
#: Errors of functions that Triton compiles: CUDA's library, and a sigmoid composed of an exponential of 2.5 ulp, a sum,
#: and a quotient of 2.5 ulp. torch's number stands where it is larger, because torch evaluates the spec, too.
TRITON_FUNCTIONS: Mapping[str, float] = {
    **{name: max(ulps, CPU_FUNCTIONS[name]) for name, ulps in CUDA_FUNCTIONS.items()}, "sigmoid": 7.0,
}  # fmt: skip
#: The name of the library of `TRITON_FUNCTIONS` in terms.
TRITON = "triton"
#: name of a library in terms -> its errors.
LIBRARIES: Mapping[str, Mapping[str, float]] = {
    "numpy": NUMPY_FUNCTIONS, "xla": XLA_FUNCTIONS, TRITON: TRITON_FUNCTIONS,
}  # fmt: skip
#: Absolute errors of approximations, in units of u of binary32. torch's vectorised GELU computes erf by Abramowitz and
#: Stegun 7.1.26, whose error without roundings is 1.5e-7 (2.5 u); with its roundings the error of 1 + erf is up to
#: 11.6 u on a million float32 numbers (torch 2.13, AVX512).
CPU_ABSOLUTE: Mapping[str, float] = {"erf": 12.0}


#: The largest factor by which an evaluation may scale an intermediate (n x − Σx for x − mean, a product in another
#: order). So much earlier than the formula it may underflow, or overflow, beyond which nothing is judged.
SCALING = 2.0**12


@dataclass(frozen=True)
class Functions:
    """The errors of elementary functions.

    Attributes:
        ulps: the largest error of each, in ulps.
        absolute: the absolute error of a cheap approximation of a function, in units of u of the accumulate format; it
            applies where a spec may use that approximation (`reference.array.erf`).
        division: roundings of a quotient: two where it is a product with the rounded reciprocal.
    """

    ulps: Mapping[str, float]
    absolute: Mapping[str, float] = field(default_factory=dict)
    division: float = 2.0


@dataclass(frozen=True)
class Accumulators:
    """How a tensor core adds up products of eight-bit numbers.

    An instruction adds some products to an accumulator. All addends are shifted to the exponent of the largest one, and
    their digits below the last bit are cut off, as are the digits of the sum below it.

    Attributes:
        bits: after the leading one. group: the number of products of an instruction.
        chunk: the number of products after which an accumulator is added to a sum in the accumulate format; 0 if all
            products are added to one accumulator.
    """

    bits: int
    group: int
    chunk: int

    def share(self, terms: int) -> float:
        """A bound on the error of a sum of `terms` products, as a share of the sum S of their magnitudes.

        Each addend of an instruction, and its sum, loses less than one last bit: 2^-bits of the largest addend or of
        the sum, neither of which is larger than S plus the errors so far. So the bound of S plus errors grows by the
        factor 1 + (group + 2) 2^-bits in each instruction.
        """
        products = min(self.chunk or terms, terms)
        growth = (self.group + 2) * 2.0**-self.bits
        return math.expm1(math.ceil(products / self.group) * math.log1p(growth))


@dataclass(frozen=True)
class Products:
    """How factors and sums of products of matrices may be rounded.

    Attributes:
        factors: relative error of each factor, in addition to that of the accumulate format: 2^-11 where factors are
            rounded to TF32. narrow: the format of the factors, if its range is narrower than that of the accumulate
            format, else None.
        partials: format in which partial sums may be stored; None for the accumulate format.
        hops: how many sums of them may be stored so on their way.
        sums: the error of sums relative to that of sums with one rounding per product: 1, or `TENSOR_SUMS`.
        accumulators: of products of eight-bit numbers; None if they are added up in the accumulate format.
    """

    factors: float = 0.0
    narrow: Format | None = None
    partials: Format | None = None
    hops: int = 0
    accumulators: Accumulators | None = None
    sums: float = 1.0


#: The error of sums by tensor cores, relative to that of one rounding per product. Each of k products, and the sum so
#: far, is cut off after 24 digits, which loses less than 2u of the largest addend, and so does the new sum (M. Fasi,
#: N. J. Higham, M. Mikaitis, S. Pranesh, PeerJ Computer Science 7, 2021). k + 1 such cuts for k products are
#: 2 (1 + 1/k) u per product, and k is at least 4.
TENSOR_SUMS = 2.5


@dataclass(frozen=True, eq=False)
class Contract:
    """The roundings that an evaluation may make: the format of its sums, the errors of its functions, and others.

    Attributes:
        accumulate: format of every intermediate.
        stores: format of stored intermediates (`reference.array.store`).
        functions, products: see those records.
        intermediates: whether an evaluation of a spec may store every intermediate in the dtype that it has in the
            spec, or only intermediates that the spec casts.
        tree: the order in which sums and products are added up.
        lattice: whether results must be exact if they are integers times a power of two and fit the format
            (`rounding.lattice`). This is not true of an evaluation that folds constants.
        flush: whether subnormal operands and results may become zero.
        algorithms: names of further algorithms of elementary functions that an evaluation may use: EXP2.
        others: whether a formula's other algorithms are allowed, or only its own text, whose balls are narrower.
        systematic: whether the bound includes errors that may be the same in every sample: the roundings of constants
            and of their reciprocals, the side of a comparison that rounding leaves open, the slope at a kink. The
            difference to a reading without them is the part of a bound that is no evidence of a bias.
        roundings: of an evaluation, per operation of the reading. Values and first derivatives are evaluated operation
            by operation as the formula and its reverse or forward mode have them. Higher orders are evaluated from
            closed forms, whose product rules repeat factors: twice as many with each order. That factor is a heuristic,
            not a theorem.
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
        """The same contract, for data whose results must be exact."""
        return replace(self, lattice=True)

    def stored_in(self, dtype: str) -> Format:
        """The format that `reference.array.store` names; `stores` for no name and for that of storage."""
        return self.stores if dtype in ("", STORAGE) else FORMATS[dtype]

    def may_store(self, fmt: Format) -> bool:
        """Whether an evaluation may round an intermediate by storing it in a format."""
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
        """float64 for narrower formats; for binary64 the machine's widest float, so that centres add little error."""
        return np.longdouble if self.accumulate.precision >= BINARY64.precision else np.float64

    @functools.cached_property
    def centre_roundoff(self) -> float:
        return float(np.finfo(self.centre_type).eps) / 2

    @functools.cached_property
    def underflow(self) -> float:
        # An evaluation that scales an intermediate down loses up to η by underflow, or a whole subnormal number if the
        # contract flushes. The loss grows by the same factor when the evaluation scales the result up again.
        return (self.accumulate.smallest_normal if self.flush else self.accumulate.eta) * SCALING

    @functools.cached_property
    def limit(self) -> float:
        """The largest intermediate that no evaluation turns into an infinity."""
        return self.accumulate.max / SCALING

    def rounding_of(self, constants: Any) -> Any:
        """A bound on the rounding of each constant of a formula to the accumulate format; None if all fit the format.

        Args:
            constants: an array of `centre_type`.
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
        """The relative error of a function at an infinity: 0, except where its limit must be rounded, as π/2."""
        ulps = self.functions.ulps[function] if function in ("arctan", "arctan2") else 0.0
        return 2.0 * ulps * self.roundoff + (self.centre_roundoff if ulps else 0.0)

    def error_of_sum(self, terms: int) -> float:
        """The error of a sum, plus that of its centre, which has any order, as a share of the terms' magnitudes."""
        partials = self.products.partials
        hops = (self.products.hops + 1) * partials.unit_roundoff if self.products.hops and partials else 0.0
        return self.tree.error(terms, self.roundoff) + (terms - 1) * self.centre_roundoff + hops * (1.0 + hops)

    @property
    def adds_in_hops(self) -> bool:
        """Whether sums of any kind are added up from rank to rank, each of them stored in a narrower format."""
        return bool(self.products.hops and self.products.partials is not None)

    def holds(self, value: float) -> bool:
        """Whether a value is a number of the accumulate format, except for overflow, which the caller must rule out."""
        if value == 0 or not math.isfinite(value):
            return True
        # `frexp` gives a mantissa below 1, which times 2^p is an integer exactly if it has p bits. Subnormal numbers
        # have fewer bits than p, so the answer for them is no, whatever their mantissa.
        mantissa = abs(math.frexp(value)[0]) * 2.0**self.accumulate.precision
        return mantissa == int(mantissa) and abs(value) >= self.accumulate.smallest_normal


@functools.lru_cache(maxsize=64)
def contract(
    dtype: str, device: str = "cpu", order: int = 0, *, flush: bool = False, algorithms: frozenset[str] = frozenset()
) -> Contract:
    """The contract of a dtype (torch's name) and an order of derivatives.

    Half types accumulate in binary32, which is torch's own rule for them (opmath).

    Args:
        dtype, device: of the arithmetic; "cuda" also for kernels that run on a CPU.
        order: of the derivative. flush, algorithms: see `Contract`.
    """
    stores = FORMATS[dtype]
    accumulate = stores if stores.precision >= BINARY32.precision else BINARY32
    absolute = CPU_ABSOLUTE if device != "cuda" and accumulate is BINARY32 else {}
    functions = Functions(CUDA_FUNCTIONS if device == "cuda" else CPU_FUNCTIONS, absolute)
    roundings = 2.0 ** max(order - 1, 0)
    return Contract(accumulate, stores, functions, flush=flush, algorithms=algorithms, roundings=roundings)
