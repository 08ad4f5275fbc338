"""Elementwise functions of torch as specs, and what torch itself is known to compute wrongly."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Spec = Callable[..., Tensor]

ACTIVATIONS: dict[str, Spec] = {
    "gelu": functional.gelu,
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "mish": functional.mish,
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 0.7),
    "elu": functional.elu,
    "elu with alpha": lambda x: functional.elu(x, 0.3),
    "softplus": functional.softplus,
    "softplus with beta": lambda x: functional.softplus(x, 2.0, 10.0),
    "softsign": functional.softsign,
    "logsigmoid": functional.logsigmoid,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "hardtanh": functional.hardtanh,
    "threshold": lambda x: functional.threshold(x, 0.1, 2.0),
    "prelu": lambda x: functional.prelu(x, torch.full((1,), 0.25, dtype=x.dtype)),
    "rrelu": functional.rrelu,
    "leaky_relu": functional.leaky_relu,
    "relu": functional.relu,
    "relu6": functional.relu6,
    "tanhshrink": functional.tanhshrink,
    "hardshrink": functional.hardshrink,
    "softshrink": functional.softshrink,
    "glu": lambda x: functional.glu(torch.cat([x, x * 0.5]), 0),
}
_SAME_NAME = """
sigmoid tanh erf erfc exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh floor
ceil round trunc sign frac sqrt rsqrt reciprocal square abs neg nan_to_num sinc lgamma digamma
"""
_OF_TWO = "atan2 pow fmod remainder hypot logaddexp xlogy copysign fmax fmin maximum minimum"
ONE: dict[str, Spec] = {
    **{name: getattr(torch, name) for name in _SAME_NAME.split()},
    "two to the": lambda x: torch.pow(2.0, x),
    "3.3 to the": lambda x: torch.pow(3.3, x),
    "cube": lambda x: x**3,
    "power 0.5": lambda x: x**0.5,
    "power -0.5": lambda x: x**-0.5,
    "power -1": lambda x: x**-1,
    "power 1.3": lambda x: x**1.3,
    "round to tenths": lambda x: torch.round(x, decimals=1),
    "fmod of a number": lambda x: torch.fmod(x, 0.75),
    "remainder of a number": lambda x: torch.remainder(x, 0.75),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "where finite": lambda x: torch.where(x.isfinite(), x, 0.0),
}
TWO: dict[str, Spec] = {
    **{name: getattr(torch, name) for name in _OF_TWO.split()},
    "floor of a quotient": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "truncated quotient": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "clamp": lambda x, y: torch.clamp(x, y, y + 2),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "logic": lambda x, y: ((x > 0) & (y < 1) | ~(x > y)).to(x.dtype) * x,
    "exclusive or": lambda x, y: torch.where((x > 0) ^ (y > 0), x, y),
}
SPECS = ACTIVATIONS | ONE | TWO

#: What torch 2.13 computes out of the bound, by (function, question, dtype) with "" for every dtype, and why it does.
FAULTS: dict[tuple[str, str, str], str] = {
    **{
        (name, "value", dtype): "vectorised fmod is NaN for quotients that the format does not hold"
        for name in ("fmod", "remainder")
        for dtype in ("float32", "bfloat16")
    },
    ("erf", "value", "bfloat16"): "an approximation with an absolute error near zero",
    ("erf", "value", "float16"): "an approximation with an absolute error near zero",
    ("power 1.3", "value", "bfloat16"): "the exponent is rounded to the half format",
    ("power 1.3", "value", "float16"): "the exponent is rounded to the half format",
    **{
        ("floor of a quotient", "value", dtype): "the quotient is rounded to the half format before it is made whole"
        for dtype in ("bfloat16", "float16")
    },
    ("remainder", "traced gradient", "float16"): "the quotient is rounded to the half format before it is made whole",
    ("logsigmoid", "traced gradient", "float16"): "the exponential is rounded to the half format on the way",
    ("addcdiv", "gradient", "float32"): "the square of the divisor underflows",
}
