"""The page docs/specs.md: which functions of torch.nn.functional are read, and which operations of aten have a rule."""

from __future__ import annotations

import textwrap
from collections import defaultdict

import numpy as np

from opassay.oracles.specs.rules import DECOMPOSED, RULES

_HEAD = """\
# What a spec in PyTorch may say

A spec is a function or a module of plain PyTorch. It is traced to aten operations, and each of them is read by a rule;
so a spec may use whatever torch turns into operations of this page. Anything else ends with one sentence, which names
the operation and the line of the spec that asked for it; a formula in NumPy may be given then ([words.md](words.md)).

A spec may choose by values (`topk`, `argmax`, `sort`) and compute from what it chose, and it may draw random numbers
(`dropout`, `multinomial`, `rand`): what is right then is told in [choices_and_chance.md](choices_and_chance.md). A
number, a branch or a shape may depend on the values of integers and truth values that the spec is given, such as
offsets, lengths, page tables and routes, but not on floating ones, because rounding may decide it. So `scan`,
`while_loop`, `cond` and `map` of torch are read as what they call in turn; a loop is given all that it reads as carried
operands. An `associative_scan` may combine its elements in any order, as torch does by a tree and a kernel one after
the other, and every order is read: up to 465 elements of one number, or 184 of 16 (n³/6 · numbers up to 2²⁴). Its
gradients are not judged.
What Cholesky, QR, `lu`, `eigh`, `svd`, solves, inverses and least squares give is judged by its residual, and what
follows in numbers: [residuals.md](residuals.md). A rank is right that some evaluation of the singular values may count.
Other decompositions (`torch.linalg` beside those, norms and products) and special functions beyond `erf`, `lgamma`,
`digamma` and `polygamma` have no rule.

The functions of `torch.fft`, `torch.stft` and `torch.istft` are read. A transform may be computed as a sum, by levels
of any factors, from half as many complex numbers if it is one of real numbers, and by Bluestein's or Rader's algorithm
where the length is no power of two; an output is off by the roundings of the longest of these ways, relative to the sum
of all magnitudes, and weights may be off as cosines of rounded angles are (`oracles/bound/rounding/fourier.py`). Of a
row with an element that is not finite nothing is judged. A convolution by transforms is right by a spec of transforms.
By a spec of sums it is right only where that allows as much: a transform has errors of the large elements in all
others. The errors of all outputs of a transform have one norm, which the transform back of a product of transforms
keeps (`oracles/bound/rounding/spectra.py`; not yet through products of matrices, nor at lengths with a prime factor
above 7). Weights may be those of rounded angles, and a sum of n terms has n roundings at worst: of a convolution of
normal numbers by transforms the half-width is 0.05 % of a value at a length of 24, 0.04 % at 64 and 0.9 % at 512 (the
median), under `torch` in float32. Bluestein's algorithm has no bound of its own at lengths of the primes 2, 3, 5 and 7
alone; it is held by that of levels there, below which it stays by far.

Numbers may be complex, in arguments, results and between: `view_as_complex`, `complex`, `polar`, sums, products, also
of matrices and running ones, quotients, powers, variances with and without means, norms of order 1, 2 or infinity,
`abs`, `angle`, `sgn`, `sqrt`, `rsqrt`, `exp`, `expm1`, `log`, `log1p`, `log2`, `log10`, `sigmoid`, `sin`, `cos`, `tan`,
`sinh`, `cosh`, `tanh` and their inverses, conjugates, transforms, choices by truth values, and what moves elements.
They are read as their parts: a part of a product is a sum of two products, and each part has a bound of its own. A
quotient may be that of school or R. L. Smith's, a power be of products or of a logarithm, and a function be computed as
glibc, CUDA or torch have it, where neither part is lost beside the other. Where the divisor or the base of a power may
be zero, or a part is infinite, these differ, and it is not judged. On a cut of an inverse function the value of either
side is right. `cholesky`, `solve` and `inv` of complex matrices are judged by their residuals
([residuals.md](residuals.md)). Complex arguments, results, parameters and buffers are drawn, compared and
differentiated as `torch.view_as_real` gives them, with 0 for the real and 1 for the imaginary part as the last index;
`complex32` is not read. Under autocast torch leaves products of complex matrices in their dtype. A kernel that
multiplies their parts multiplies real matrices, which autocast casts, and it may.

A cast to integers truncates, and one to truth values asks what is not zero. Where rounding leaves open which integer
that is, any is right that an evaluation may have, and so is what follows from it: `x[(y * 8).long()]`, quantised
numbers beside their scale, numbers of four bits in one byte. A cast of what is NaN or beyond the range of the integers
is undefined in C and in torch, and is not judged.

Derivatives that a spec takes itself are read, by `torch.func` (`grad`, `jacrev`, `hessian`, within `vmap` as well) and
by `torch.autograd.grad`, also of results of it. A spec and a candidate that call `torch.autograd.grad` need not turn
derivatives on.

A `torch.autograd.Function` is read as what its forward does, and its derivatives are those of that. `nn.Parameter(x)`
is a tensor to which no derivative leads back. What `torch.compile` made is read as its original. What a module keeps
from call to call stands in a buffer. Sparse and nested tensors end with a sentence that names the operation and the
line.

A cast to eight bits, e4m3, e5m2 or e8m0, is a part of what a spec means, and no rounding that an evaluation may leave
out: [low_bit.md](low_bit.md).

`python benchmarks/functions_read.py > docs/specs.md` writes this page anew.
"""
_TITLES = {
    "slopes": "Functions with slopes of their own", "steps": "Kernels of several steps",
    "activations": "Activations", "alignment": "Alignment", "codes": "Bytes", "counting": "Counts and places",
    "elementwise": "Functions of elements", "indexing": "Reading and writing at places", "images": "Images and signals",
    "equations": "Factors and solutions", "fourier": "Fourier transforms",
    "losses": "Losses", "norms": "Norms and lengths", "ordering": "Ordering and scans",
    "parts": "Complex numbers", "analytic": "Functions of complex numbers",
    "products": "Products of matrices", "reductions": "Reductions", "structure": "Shapes and constants",
}  # fmt: skip
#: Rules that are functions of NumPy, and no elementwise ones.
_OF_NUMPY: dict[object, str] = {np.matmul: "products", np.transpose: "structure", np.swapaxes: "structure"}


def _reason(message: str) -> str:
    """Of a refusal what does not depend on the call that was made."""
    return "an operation of it has no rule" if "has no rule" in message else message


def page(known: list[str], refusals: dict[str, str]) -> str:
    """The text of docs/specs.md."""
    parts = [_HEAD, f"## Functions of `torch.nn.functional` that are read: {len(known)}\n\n{_wrapped(known)}\n"]
    parts.append(f"## Those that are not: {len(refusals)}\n")
    parts.append("\n".join(f"- `{name}`: {_reason(refusals[name])}" for name in sorted(refusals)) + "\n")
    parts.append(operations())
    return "\n".join(parts)


def operations() -> str:
    """The part of the page that lists the operations that have a rule."""
    groups = defaultdict(set)
    for table in (RULES, DECOMPOSED):
        for operation, rule in table.items():
            space, _, name = str(operation).partition(".")
            groups[_home(rule)].add(name.removesuffix(".default") if space == "aten" else "")
    count = len({name for names in groups.values() for name in names if name})
    parts = [f"## Operations of aten that have a rule: {count}\n", "Others are read where torch decomposes them.\n"]
    for home in sorted(groups, key=lambda each: _TITLES.get(each, each)):
        parts.append(f"### {_TITLES.get(home, home)}\n\n{_wrapped(sorted(groups[home] - {''}))}\n")
    return "\n".join(parts)


def _home(rule: object) -> str:
    """The module of rules that a rule stands in; NumPy's own functions are elementwise ones."""
    if rule in _OF_NUMPY:
        return _OF_NUMPY[rule]
    module = str(getattr(rule, "__module__", "") or "")
    return module.partition("specs.rules.")[2].partition(".")[0] or "elementwise"


def _wrapped(names: list[str]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names), 120)
