"""Terms: the names of what a user allows an implementation, from which the `Contract` of a dtype and device is made.

What this is for: the author of a kernel says in words what it may do ("TF32 products", "sums in bfloat16"), and the
judge needs numbers. Each number here comes from the definition of a format, or from the manual that is named beside it.

Terms are a value: two of them are equal if they allow the same. They have a name (`PRESETS`), or a name with allowances
(`terms("tensor_core+flush")`), or are built field by field.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...reference.dtypes import EVERY_FORMAT, FORMATS, HALF_TYPES, Format
from ...reference.missing import nearest_of
from .contract import (
    CUDA_FUNCTIONS,
    EXP2,
    LIBRARIES,
    LOG_SUM,
    SCALED,
    SPREAD,
    TENSOR_SUMS,
    TRITON,
    Accumulators,
    Contract,
    Products,
    contract,
)
from .trees import NAMES, tree

#: TF32 as a tensor core converts float32 to it without an instruction: it ignores the last 13 bits.
CUT_TF32 = "cut_tf32"
#: format of factors -> the relative error of a factor of a product of matrices. TF32 keeps 11 bits (NVIDIA A100 Tensor
#: Core GPU Architecture, 2020), as binary16 does. With bf16x3 a number is a sum of two bfloat16 numbers with a relative
#: error of 2^-16, and the product of the two small parts, at most 2^-16 of the product, is left out. Together these
#: errors are less than those of two factors with a relative error of 2^-15 each.
FACTORS: Mapping[str, float] = {
    "tf32": 2.0**-11,
    CUT_TF32: 2.0**-10,
    **{name: FORMATS[name].unit_roundoff for name in HALF_TYPES},
    "bf16x3": 2.0**-15,
}

#: name -> how tensor cores add up products of eight-bit numbers. On Hopper an instruction of 32 products keeps 13 bits
#: after the leading one and cuts off the others (DeepSeek-V3 Technical Report, arXiv 2412.19437, 2024, section 3.5.2:
#: 14 bits in all). To limit that error some kernels add the sum of every 128 products to a sum in float32 (3.3.2).
ACCUMULATORS: Mapping[str, Accumulators] = {
    "hopper_fp8": Accumulators(bits=13, group=32, chunk=0),
    "hopper_fp8_128": Accumulators(bits=13, group=32, chunk=128),
}

#: Factors that are rounded to the spec's dtype if that is a half type, as the operands of tensor cores are.
HALF = "half"
_FACTOR_WORDS = {HALF: "the half type of the spec", CUT_TF32: "TF32, or cut off to it"}

#: Largest errors in ulps of CUDA's fast functions in single precision. In PTX ISA 8.7 the relative error of ex2.approx
#: is at most 2^-22.5 (2 ulp in 9.1), that of tanh.approx 2^-11, which is 4096 ulp, that of rsqrt.approx 2^-22.9, and
#: that of sqrt.approx 2^-23. Ulps of the ISA are relative to the correctly rounded result. A sigmoid is 1 / (1 + ex2):
#: 2.5 ulp, a sum, and a quotient of 2.5 ulp. The ISA gives the logarithm near 1, and powers, no relative bound, so they
#: have the bounds of CUDA's accurate functions.
APPROXIMATE_FUNCTIONS: Mapping[str, float] = {
    **CUDA_FUNCTIONS, "exp": 2.5, "expm1": 2.5, "sqrt": 1.5, "tanh": 4096.0, "sigmoid": 7.0,
}  # fmt: skip
#: The error of a quotient by div.full, in units of roundoff, of which an ulp is two: 2 ulp from the correctly rounded
#: quotient (PTX ISA 8.7), and half an ulp from that to the exact one.
_FULL_DIVISION = 5.0


class TermsError(ValueError):
    """A name is neither that of terms nor that of an allowance; the text lists the names."""


@dataclass(frozen=True)
class Terms:
    """What an implementation is allowed.

    Attributes:
        name: of the terms in the report.
        accumulate: format of every intermediate, a dtype name of torch; empty for torch's own rule: the dtype itself,
            or float32 for the half types.
        intermediates: whether every intermediate of the spec may be stored in the dtype that it has in the spec.
        inputs: format to which inputs may be rounded before the op; empty for none.
        factors: format to which factors of products of matrices may be rounded, a key of `FACTORS`; empty for none.
            `half` is the dtype itself if that is a half type, and else allows nothing.
        partials: format in which partial sums of products may be stored; empty for the accumulate format.
        accumulators: of products of eight-bit numbers, a key of `ACCUMULATORS`; empty for the accumulate format.
        approximate: whether functions and quotients may be CUDA's fast ones.
        library: the library of elementary functions, a key of `LIBRARIES`; empty for torch's.
        flush: whether subnormal numbers may become zero.
        tree: the name of the tree along which sums and products are added up (`trees.tree`); empty for any order.
        algorithms: names of further algorithms that are allowed (`ArithmeticPromises.algorithms`). None also disallows
            the other algorithms of a formula (`Contract.others`), which no terms of users do.
    """

    name: str = "strict"
    accumulate: str = ""
    intermediates: bool = False
    inputs: str = ""
    factors: str = ""
    partials: str = ""
    accumulators: str = ""
    approximate: bool = False
    library: str = ""
    flush: bool = False
    tree: str = ""
    algorithms: frozenset[str] | None = frozenset()

    def __post_init__(self) -> None:
        formats = dict.fromkeys(("accumulate", "inputs", "partials"), tuple(FORMATS))
        others = {"factors": (HALF, *FACTORS), "library": tuple(LIBRARIES), "accumulators": tuple(ACCUMULATORS)}
        for field, names in (formats | others).items():
            if getattr(self, field) not in ("", *names):
                raise ValueError(f"{field}: got {getattr(self, field)!r}, need one of {', '.join(names)}")
        tree(self.tree)

    def __str__(self) -> str:
        """What is allowed, in one line."""
        parts = [f"sums in {self.accumulate}" if self.accumulate else "sums in the dtype, of half types in float32"]
        parts += [f"inputs rounded to {self.inputs}"] if self.inputs else []
        parts += ["intermediates stored in their dtype"] if self.intermediates else []
        parts += (
            [f"factors of products rounded to {_FACTOR_WORDS.get(self.factors, self.factors)}"] if self.factors else []
        )
        parts += [f"partial sums stored in {self.partials}"] if self.partials else []
        parts += [f"sums added {tree(self.tree)}"] if self.tree else []
        parts += ["sums of tensor cores"] if self._by_tensor_cores() else []
        parts += [f"products of eight bits added up as {self.accumulators}"] if self.accumulators else []
        parts += ["CUDA's fast functions and quotients"] if self.approximate else []
        parts += [f"elementary functions of {self.library}"] if self.library else []
        parts += ["subnormal numbers may be zero"] if self.flush else []
        parts += [f"algorithms: {', '.join(sorted(self.algorithms))}"] if self.algorithms else []
        return f"{self.name}: {'; '.join(parts)}"

    def _by_tensor_cores(self, dtype: str = "") -> bool:
        """Whether tensor cores may add up products: with factors in TF32, or in code of Triton's compiler.

        Under any terms they may add up half types, so along a declared tree the error of their additions counts.
        """
        return self.factors in ("tf32", CUT_TF32) or self.library == TRITON or bool(self.tree and dtype in HALF_TYPES)

    @functools.lru_cache(maxsize=256)  # noqa: B019 (terms are few, and scalars of the reading are kept by contract)
    def contract(self, dtype: str, device: str = "cpu", order: int = 0) -> Contract:
        """The contract of a dtype (torch's name), the device of the arithmetic, and an order of derivatives."""
        base = contract(dtype, device, order, flush=self.flush, algorithms=self.algorithms or frozenset())
        accumulate = FORMATS[self.accumulate] if self.accumulate else base.accumulate
        name = (
            dtype if self.factors == HALF and FORMATS[dtype].precision < FORMATS["float32"].precision else self.factors
        )
        factors, partials = FACTORS.get(name, 0.0), FORMATS.get(self.partials)
        # An allowance of a format with more precision than that of the accumulate format allows nothing.
        if factors <= accumulate.unit_roundoff:
            factors = 0.0
        if partials is not None and partials.precision >= accumulate.precision:
            partials = None
        single = accumulate == FORMATS["float32"]
        fast = self.approximate and single
        ulps = APPROXIMATE_FUNCTIONS if fast else LIBRARIES.get(self.library, base.functions.ulps)
        division = _FULL_DIVISION if fast or (single and self.library == TRITON) else base.division
        return replace(
            base,
            others=self.algorithms is not None,
            accumulate=accumulate,
            intermediates=self.intermediates,
            products=Products(
                factors,
                FORMATS["float16"] if factors and name == "float16" else None,
                partials,
                0,
                ACCUMULATORS.get(self.accumulators),
                TENSOR_SUMS if self._by_tensor_cores(dtype) and single and (factors or dtype in HALF_TYPES) else 1.0,
            ),
            functions=replace(base.functions, ulps=ulps, division=division),
            tree=tree(self.tree),
        )

    @property
    def of_text_alone(self) -> Terms:
        """The same terms with no algorithm but the formula's own text."""
        return replace(self, algorithms=None)

    def format_of_inputs(self, dtype: str) -> Format | None:
        """The format to which inputs of a dtype may be rounded; None if that rounds nothing."""
        fmt = FORMATS.get(self.inputs)
        return fmt if fmt is not None and fmt.precision < EVERY_FORMAT[dtype].precision else None


@dataclass(frozen=True)
class TermsOfRanks(Terms):
    """What is allowed of an implementation on several ranks, which send each other sums in `partials`.

    Attributes:
        hops: how many times a sum of sums may be stored so on its way.
    """

    hops: int = 0

    def __str__(self) -> str:
        return f"{super().__str__()}; on their way from rank to rank sums are stored {self.hops} times more"

    @functools.lru_cache(maxsize=256)  # noqa: B019 (as above)
    def contract(self, dtype: str, device: str = "cpu", order: int = 0) -> Contract:
        """See `Terms.contract`."""
        base = super().contract(dtype, device, order)
        return replace(base, products=replace(base.products, hops=self.hops))


_ALGORITHMS = frozenset({"folded", "shifted", SCALED})
_TORCH = Terms("torch", intermediates=True, algorithms=_ALGORITHMS)
#: name for users -> terms, from the strictest to the laxest.
PRESETS: Mapping[str, Terms] = {
    "strict": Terms("strict"),
    "flash": Terms("flash", factors=HALF, algorithms=frozenset({"folded", "shifted", EXP2})),
    "torch": _TORCH,
    "tensor_core": replace(
        _TORCH, name="tensor_core", factors="tf32", algorithms=_ALGORITHMS | {EXP2}
    ),
    "fast_math": replace(
        _TORCH, name="fast_math", factors="tf32", approximate=True, flush=True,
        algorithms=_ALGORITHMS | {EXP2},
    ),
}  # fmt: skip
#: name of an allowance -> the fields that it sets.
ALLOWANCES: Mapping[str, Mapping[str, str | bool]] = {
    **{name: {"accumulate": name} for name in ("float32", *HALF_TYPES)},
    **{f"{name}_inputs": {"inputs": name} for name in HALF_TYPES},
    **{f"{name}_factors": {"factors": name} for name in (*HALF_TYPES, HALF)},
    **{f"{name}_partials": {"partials": name} for name in HALF_TYPES},
    **{name: {"factors": name} for name in ("tf32", CUT_TF32, "bf16x3")},
    **{name: {"accumulators": name} for name in ACCUMULATORS},
    "stored": {"intermediates": True},
    "approximate": {"approximate": True},
    **{name: {"library": name} for name in LIBRARIES},
    "flush": {"flush": True},
    **{name: {"tree": name} for name in NAMES},
}
#: Allowances that name an algorithm.
ALGORITHMS = frozenset({EXP2, LOG_SUM, SCALED, SPREAD, "folded", "shifted"})
#: Allowances of something else of one operation alone, and hardly more, in words: no other formula lies within.
OF_ONE: Mapping[str, str] = {
    EXP2: "exp(x) as exp2 of a rounded product",
    LOG_SUM: "x less a logarithm of a sum, which is rounded first",
    "flush": "subnormal numbers as zero",
    "bf16x3": "products as three of bfloat16",
}

#: The terms that a precision audit tries, from the strictest to the laxest, and its words for a kernel within them.
LADDER: tuple[tuple[Terms, str], ...] = (
    (Terms("float64", accumulate="float64"), "float64, rounded once"),
    (PRESETS["strict"], "{dtype}, sums in {sums}"),
    (PRESETS["flash"], "{dtype} products, all else in {sums}"),
    (PRESETS["torch"], "{dtype} wherever the spec has it, sums in {sums}"),
    (replace(_TORCH, name="bf16x3", factors="bf16x3"), f"{OF_ONE['bf16x3']}, sums in {{sums}}"),
    (PRESETS["tensor_core"], "TF32 products, sums in {sums}"),
    (replace(_TORCH, name="bfloat16_factors", factors="bfloat16"), "bfloat16 products, sums in {sums}"),
    (PRESETS["fast_math"], "fast functions, sums in {sums}"),
    (replace(_TORCH, name="float16", accumulate="float16"), "{dtype} wherever the spec has it, sums in float16"),
    (replace(_TORCH, name="bfloat16", accumulate="bfloat16"), "{dtype} wherever the spec has it, sums in bfloat16"),
)


def terms_of_compiled(allowed: Terms) -> Terms:
    """The same terms, with the errors of the instructions that Triton's compiler generates for functions.

    `tl.exp(x)` is ex2.approx(x log2 e), `/` is div.full, `tl.sqrt` treats subnormal numbers as zero, and `tl.dot` adds
    up products on tensor cores.
    """
    factors = CUT_TF32 if allowed.factors == "tf32" else allowed.factors
    algorithms = (allowed.algorithms or frozenset()) | {EXP2}
    return replace(allowed, factors=factors, library=allowed.library or TRITON, flush=True, algorithms=algorithms)


def terms(named: str | Terms) -> Terms:
    """Terms by name: a preset, or a preset followed by allowances, as "strict+tf32+flush".

    Raises:
        TermsError: no terms or no allowance have this name; the text lists the names.
    """
    if isinstance(named, Terms):
        return named
    if not isinstance(named, str):
        raise TermsError(f"contract: got {named!r}, need one of {', '.join(PRESETS)}, or Terms")
    first, *more = named.split("+")
    if first not in PRESETS:
        near = nearest_of(first, PRESETS)
        raise TermsError(f"contract: got {first!r}{near}, need one of {', '.join(PRESETS)}, with allowances after a +")
    combination = PRESETS[first]
    for name in more:
        if name in ALGORITHMS:
            combination = replace(combination, algorithms=(combination.algorithms or frozenset()) | {name})
        elif name in ALLOWANCES:
            combination = replace(combination, **ALLOWANCES[name])  # type: ignore[arg-type]
        else:
            try:
                combination = replace(combination, tree=name or " ")
            except ValueError as err:
                names = [*ALLOWANCES, *sorted(ALGORITHMS)]
                near = nearest_of(name, names)
                raise TermsError(f"contract: got allowance {name!r}{near}, need one of {', '.join(names)}") from err
    return replace(combination, name=named)
