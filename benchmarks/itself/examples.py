"""Calls of torch's functions, by name: of functions of elements, reductions and scans, at shapes with tails.

A call takes tensors of normal numbers in its shapes; its data are of a kind (`kinds`) in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Example:
    """A function of torch, and the shapes of its arguments.

    Attributes:
        name: for tables. function: of floating tensors. shapes: of these.
        fixed: whether arguments keep the values that `made` gives, whatever the kind; their dtype is that under test.
        made: the arguments; None for normal numbers in the shapes.
    """

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]


_UNARY = """
abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac log log10 log1p log2 neg
rad2deg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc signbit isfinite isnan isinf
logical_not sgn positive nan_to_num
"""
_SPECIAL = (
    "entr erfcx erfinv expit log_ndtr logit ndtr ndtri sinc xlog1py i0 i0e i1 i1e digamma gammaln exp2 log_softmax"
)
_BINARY = """
add sub mul div atan2 copysign fmax fmin fmod hypot logaddexp logaddexp2 maximum minimum pow remainder xlogy
floor_divide true_divide eq ne lt le gt ge nextafter heaviside logical_and logical_or logical_xor
"""
_REDUCTIONS = "sum mean prod amax amin logsumexp var std argmax argmin median norm all any"
_SCANS = "cumsum cumprod logcumsumexp cummax cummin sort softmax log_softmax flip"
_ELEMENTS = (24, 43)


def _of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    return lambda *tensors: function(*tensors, *args, **kwargs)


def _elementwise() -> list[Example]:
    examples = [Example(name, getattr(torch, name), (_ELEMENTS,)) for name in _UNARY.split()]
    examples += [Example(f"special.{name}", getattr(torch.special, name), (_ELEMENTS,)) for name in _SPECIAL.split()]
    examples += [Example("special.xlog1py", torch.special.xlog1py, (_ELEMENTS, _ELEMENTS))]
    examples += [Example(name, getattr(torch, name), (_ELEMENTS, _ELEMENTS)) for name in _BINARY.split()]
    return examples


def _along_rows() -> list[Example]:
    examples = []
    for size in (7, 97, 1031):
        shape = (max(3, 2000 // size), size)
        examples += [
            Example(f"{name} of {size}", _of(getattr(torch, name), dim=-1), (shape,)) for name in _REDUCTIONS.split()
        ]
        examples += [Example(f"{name} of {size}", _along(name), (shape,)) for name in _SCANS.split()]
    examples += [
        Example(f"{name} of all", getattr(torch, name), ((31, 17),))
        for name in _REDUCTIONS.split()
        if name != "logsumexp"
    ]
    return examples


def _along(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)
    return _of(function, dims=(-1,)) if name == "flip" else _of(function, dim=-1)


_SCALARS: dict[str, Callable[[Tensor], Any]] = {
    "x + 3": lambda x: x + 3, "3 - x": lambda x: 3 - x, "x / 3": lambda x: x / 3, "3 / x": lambda x: 3 / x,
    "x ** 2": lambda x: x**2, "x ** 3": lambda x: x**3, "x ** 0.5": lambda x: x**0.5, "x ** -1": lambda x: x**-1,
    "x ** 2.5": lambda x: x**2.5, "2 ** x": lambda x: 2**x, "x % 3": lambda x: x % 3, "x // 0.3": lambda x: x // 0.3,
    "fmod 0.7": lambda x: torch.fmod(x, 0.7), "clamp": lambda x: torch.clamp(x, -0.5, 1.0),
    "clamp_min": lambda x: torch.clamp_min(x, 0.0), "clamp_max": lambda x: torch.clamp_max(x, 1.0),
    "round 2": lambda x: torch.round(x, decimals=2), "xlogy 2": lambda x: torch.xlogy(x, 2.0),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3), "x.int()": lambda x: x.int() * x,
    "x.bool()": lambda x: x.bool() * x, "masked_fill": lambda x: x.masked_fill(x > 0, -torch.inf).amax(-1),
    "where": lambda x: torch.where(x > 0, x, x.exp()), "tril": torch.tril, "diff": torch.diff,
    "topk": lambda x: torch.topk(x, 5), "kthvalue": lambda x: torch.kthvalue(x, 3),
    "aminmax": lambda x: torch.aminmax(x),
    "quantile": lambda x: torch.quantile(x.float(), 0.3, -1), "var_mean": lambda x: torch.var_mean(x, -1),
    "std 0": lambda x: torch.std(x, -1, correction=0), "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, -1), "norm 3": lambda x: torch.linalg.vector_norm(x, 3, -1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, torch.inf, -1), "trapezoid": lambda x: torch.trapezoid(x),
    "nansum": torch.nansum, "nanmean": torch.nanmean, "count_nonzero": torch.count_nonzero, "trace": torch.trace,
    "unfold": lambda x: x.unfold(-1, 5, 3).mean(-1), "cov": torch.cov, "corrcoef": torch.corrcoef,
}  # fmt: skip

_PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((33, 65), (65, 17))),
    "mm long": (torch.mm, ((9, 1500), (1500, 8))),
    "bmm": (torch.bmm, ((5, 17, 33), (5, 33, 9))),
    "mv": (torch.mv, ((33, 257), (257,))),
    "dot": (torch.dot, ((999,), (999,))),
    "addmm": (torch.addmm, ((17, 9), (17, 300), (300, 9))),
    "addmm beta": (_of(torch.addmm, beta=0.3, alpha=1.7), ((17, 9), (17, 33), (33, 9))),
    "addmm row": (torch.addmm, ((9,), (17, 300), (300, 9))),
    "baddbmm": (torch.baddbmm, ((3, 17, 9), (3, 17, 300), (3, 300, 9))),
    "addbmm": (torch.addbmm, ((17, 9), (5, 17, 33), (5, 33, 9))),
    "addmv": (torch.addmv, ((17,), (17, 300), (300,))),
    "addr": (torch.addr, ((17, 9), (17,), (9,))),
    "einsum": (lambda a, b: torch.einsum("bijl,lk->bijk", a, b), ((2, 3, 7, 15), (15, 6))),
    "cdist": (torch.cdist, ((9, 7), (8, 7))),
    "chain": (lambda a, b, c: a @ b @ c, ((9, 17), (17, 33), (33, 5))),
    "C + a @ b": (lambda c, a, b: c + a @ b, ((17, 9), (17, 300), (300, 9))),
    "lerp": (torch.lerp, (_ELEMENTS,) * 3),
    "addcdiv": (torch.addcdiv, (_ELEMENTS,) * 3),
    "dist": (torch.dist, ((77,), (77,))),
    "cross": (torch.cross, ((40, 3), (40, 3))),
    "kron": (torch.kron, ((4, 5), (3, 6))),
    "outer": (torch.outer, ((40,), (33,))),
}


def examples() -> list[Example]:
    """All of them, in order."""
    examples = _elementwise() + _along_rows()
    examples += [Example(name, function, (_ELEMENTS,)) for name, function in _SCALARS.items()]
    return examples + [Example(name, function, shapes) for name, (function, shapes) in _PRODUCTS.items()]
