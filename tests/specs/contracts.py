"""The page docs/contracts.md and its table: what contracts and allowances let a kernel do, its source, and its width.

The sentences stand here by the names of the code; a name without one, or a sentence without a name, is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.oracles.bound.rounding import balls
from opassay.oracles.bound.terms import ALGORITHMS, ALLOWANCES, PRESETS, terms
from opassay.oracles.bound.trees import NAMES, tree
from opassay.oracles.specs import traced
from opassay.reference.array import store
from opassay.reference.dtypes import HALF_TYPES
from opassay.reference.formats import FORMATS, ulp_array

_IEEE = "IEEE 754-2019; bfloat16: Intel, BFLOAT16 Hardware Numerics Definition, 2018"
_PTX = "PTX ISA 8.7"
_HIGHAM = "Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2"
_TF32 = "NVIDIA A100 Tensor Core GPU Architecture, 2020"
_DEEPSEEK = "DeepSeek-V3 Technical Report, arXiv 2412.19437, 2024, sections 3.3.2 and 3.5.2"

_PRESETS: dict[str, tuple[str, str]] = {
    "strict": (
        "sums in the dtype, of half types in float32, in any order; functions within the ulps that their libraries"
        " document; one rounding for each output",
        "sums: Jeannerod and Rump, SIMAX 34, 2013; functions: glibc and SLEEF, CUDA C++ Programming Guide",
    ),
    "flash": (
        "`strict`, factors of products of matrices rounded once to the half type of the spec, the exponential as"
        " 2^(x log2 e), and the other algorithms of norms",
        "Dao et al., FlashAttention, NeurIPS 2022",
    ),
    "torch": (
        "`strict`, half types stored between the operations of the spec and the steps of torch's kernels and"
        " derivatives, the other algorithms of norms, and scores of attention whose factors are scaled",
        "torch's own kernels and `derivatives.yaml`",
    ),
    "tensor_core": ("`torch`, `tf32` and `exp2`, and sums of tensor cores", f"{_TF32}; sums: as `tf32`"),
    "fast_math": ("`tensor_core`, `approximate` and `flush`", f"CUDA C++ Programming Guide, `--use_fast_math`; {_PTX}"),
}
_ALLOWANCES: dict[str, tuple[str, str]] = {
    "float32": ("sums and all else in float32", "IEEE 754-2019"),
    **{name: (f"sums and all else in {name}", _IEEE) for name in HALF_TYPES},
    **{f"{name}_inputs": (f"inputs rounded to {name} before all else", _IEEE) for name in HALF_TYPES},
    **{f"{name}_factors": (f"factors of products of matrices rounded to {name}", _IEEE) for name in HALF_TYPES},
    "half_factors": ("factors of products of matrices rounded to the half type of the spec", _IEEE),
    **{f"{name}_partials": (f"partial sums of products of matrices stored in {name}", _IEEE) for name in HALF_TYPES},
    "tf32": (
        "factors of products of matrices rounded to TF32, with 11 bits, and sums of tensor cores",
        f"{_TF32}; sums: Fasi, Higham, Mikaitis and Pranesh, PeerJ Computer Science 7, 2021",
    ),
    "cut_tf32": ("`tf32`, of factors whose last 13 bits are cut off", _TF32),
    "bf16x3": (
        "products as three products of factors that are sums of two bfloat16 numbers",
        "Henry, Tang and Heinecke, ARITH 2019",
    ),
    "hopper_fp8": ("products of eight-bit numbers in an accumulator that cuts off behind 13 bits", _DEEPSEEK),
    "hopper_fp8_128": ("`hopper_fp8`, added to a sum in float32 after every 128 products", _DEEPSEEK),
    "stored": ("every intermediate stored in the dtype that it has in the spec", "torch's own kernels"),
    "approximate": (
        "CUDA's fast functions and quotients: `ex2.approx`, `tanh.approx`, `rsqrt.approx`, `sqrt.approx`, `div.full`",
        _PTX,
    ),
    "numpy": ("elementary functions of NumPy on CPUs", "`benchmarks/library_functions.py`, NumPy 2.4.6, AVX512"),
    "xla": ("elementary functions of XLA on CPUs", "`benchmarks/library_functions.py`, jax 0.10.2, AVX512"),
    "triton": (
        "what Triton's compiler makes of functions and quotients, and sums of tensor cores",
        f"CUDA C++ Programming Guide; {_PTX}",
    ),
    "flush": ("subnormal operands and results may be zero", f"{_PTX}, `.ftz`"),
    **{
        name: (
            f"a promise that narrows the bound: sums are added {tree(name)}; numbers in the name may be others",
            _HIGHAM,
        )
        for name in NAMES
    },
}
_ALGORITHMS: dict[str, tuple[str, str]] = {
    "exp2": ("the exponential as 2^(x log2 e), of a rounded exponent", "Dao et al., FlashAttention, NeurIPS 2022"),
    "lse": ("log_softmax and cross entropy as x less a log-sum-exp that is rounded", "fused kernels of losses"),
    "scaled": ("queries and keys of attention, each scaled by the root of the scale", "torch's text of attention"),
    "spread": (
        "NaNs and infinities of operands that reach more elements than in the spec, or fewer, where numbers are right",
        "IEEE 754-2019: 0 NaN and inf - inf are NaN",
    ),
    "folded": (
        "a norm as one factor and one term for each element, x a + b",
        "torch's batch and group norm",
    ),
    "shifted": (
        "moments of a norm about its first element, E[(x - x0)²] - E[x - x0]²",
        "Chan, Golub and LeVeque, Amer. Statist. 37, 1983",
    ),
}

_HEAD = """\
# Contracts

What a kernel may do is a contract: `contract="torch+tf32"`, `--contract torch+tf32`, a preset and allowances behind it,
each after a `+`. From it and the spec the bound is derived ([bound.md](bound.md)); no number of this page was chosen.
[Judge a kernel](judgements.md#what-every-contract-allows) says what is allowed under every contract.

`python benchmarks/contracts.py` writes this page and its table anew.
"""
_FIGURES = """\
## How wide they are

The median half-width of the accept set, in units of the last place of the output's dtype, of five specs at normal data
with a fixed seed, on a CPU: half a unit is what the rounding of the output alone takes. An allowance stands behind
`strict`. Where it allows a spec nothing, its figure is that of `strict`: `hopper_fp8` is for factors of eight bits, and
half types have sums in float32 as it is. Where it says "none", nothing bounds most elements: an evaluation may
overflow, or divide by what may be zero. These are worst cases; most errors are far smaller. `scaled` makes attention
narrower, because what either of two algorithms may give is no sum that an accumulator goes on with.

On the built site a table stands here that is filtered by its columns and by text. In a checkout it is
[tables/contracts.txt](tables/contracts.txt).
"""

Spec = Callable[..., Any]
_SPECS: dict[str, tuple[Spec, tuple[tuple[int, ...], ...]]] = {
    "dot of 4096": (torch.mv, ((16, 4096), (4096,))),
    "softmax of 1024": (lambda x: torch.softmax(x, -1), ((4, 1024),)),
    "attention of 256 keys": (F.scaled_dot_product_attention, ((1, 4, 64), (1, 256, 64), (1, 256, 64))),
    "layer norm of 1024": (lambda x: F.layer_norm(x, (1024,)), ((4, 1024),)),
    "transform of 256": (lambda x: torch.view_as_real(torch.fft.rfft(x)), ((4, 256),)),
}
_DTYPES = ("float32", "bfloat16")
#: The columns of the figures; torch has no transform of half types on CPUs.
COLUMNS = tuple(
    (spec, dtype) for spec in _SPECS for dtype in _DTYPES if (spec, dtype) != ("transform of 256", "bfloat16")
)


def description() -> str:
    """The page without its figures."""
    groups = (
        ("Presets", PRESETS, _PRESETS), ("Allowances", ALLOWANCES, _ALLOWANCES),
        ("Algorithms that an allowance may name", sorted(ALGORITHMS), _ALGORITHMS),
    )  # fmt: skip
    return "\n".join([_HEAD, *(_describe(title, names, sentences) for title, names, sentences in groups)])


def _describe(title: str, names: Iterable[str], sentences: Mapping[str, tuple[str, str]]) -> str:
    names = list(names)
    if set(names) != set(sentences):
        raise KeyError(f"contracts without a sentence, or sentences without one: {sorted(set(names) ^ set(sentences))}")
    rows = [f"| `{name}` | {sentences[name][0]} | {sentences[name][1]} |" for name in names]
    return "\n".join([f"## {title}", "", "| name | allows | source |", "|---|---|---|", *rows, ""])


def contracts() -> list[str]:
    """The contracts whose widths the page has."""
    return [*PRESETS, *(f"strict+{name}" for name in (*ALLOWANCES, *sorted(ALGORITHMS)))]


def page() -> str:
    """The text of docs/contracts.md."""
    return f"{description()}\n{_FIGURES}"


def table() -> str:
    """The text of docs/tables/contracts.txt."""
    titles = "".join(f" {spec}, {dtype} |" for spec, dtype in COLUMNS)
    rows = [f"| `{name}` |" + "".join(f" {show(name, *each)} |" for each in COLUMNS) for name in contracts()]
    return "\n".join(["## How wide they are", "", f"| contract |{titles}", "|---|" + "---:|" * len(COLUMNS), *rows, ""])


def show(name: str, spec: str, dtype: str) -> str:
    """A figure as the page has it."""
    figure = width(name, spec, dtype)
    return "none" if figure == np.inf else f"{figure:,.0f}" if figure >= 100 else f"{figure:.2g}"


def width(name: str, spec: str, dtype: str) -> float:
    """The median half-width of the accept sets of a spec under a contract, in units of the last place."""
    formula, values = _reading(spec, dtype)
    cast = terms(name).format_of_inputs(dtype)
    (bound,) = balls(
        lambda *xs: formula(*(xs if cast is None else (store(x, cast.name) for x in xs))),
        values, terms(name).contract(dtype),
    )  # fmt: skip
    fmt = FORMATS[dtype]
    unit = ulp_array(fmt, np.abs(np.asarray(bound.centre, dtype=np.float64)))
    return float(np.median(bound.half_widths(fmt) / unit))


@functools.cache
def _reading(spec: str, dtype: str) -> tuple[Any, list[Any]]:
    function, shapes = _SPECS[spec]
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator).to(getattr(torch, dtype)) for shape in shapes]
    values = [_values(x) for x in tensors]
    return traced(function, *tensors), values


def _values(x: Tensor) -> Any:
    return x.double().numpy()
