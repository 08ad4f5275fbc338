"""Results of torch that are outside for a reason that is known, so that no bound should take them in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Loss:
    """What torch's kernels do on CPUs that the contract does not allow.

    Attributes:
        of: the functions, for people. names, dtypes, results: patterns of the names of sources, dtypes and results.
        why: what is lost, with numbers that float64 or mpmath has beside it.
    """

    of: str
    names: str
    dtypes: str
    results: str
    why: str

    def explains(self, row: dict[str, Any]) -> bool:
        words = ((self.names, row["name"]), (self.dtypes, row["dtype"]), (self.results, row["what"]))
        return all(re.fullmatch(pattern, word) for pattern, word in words)


_HALF = "bfloat16|float16"
_F = r"(F\.|nn\.functional\.)?"
LOSSES = (
    Loss(
        "`erf`", "erf( .*)?", _HALF, "value .*",
        "in vectors a polynomial with an absolute error: erf(2^-22) is 4.17e-7, by mpmath 2.69e-7"
        " (`findings/torch_erf_half.py`)",
    ),
    Loss(
        "`fmod`, `remainder`", r"fmod .*|(fmod|remainder) \d", "float32|bfloat16", "value .*",
        "in vectors the quotient of the largest numbers overflows: fmod(3e38, 0.7) is NaN, by mpmath 0.2078"
        " (`findings/torch_fmod.py`)",
    ),
    Loss(
        "transposed convolutions, and gradients of all convolutions",
        _F + r"conv(_transpose)?\d?d.*|conv2d_depthwise|conv_transpose.*|convolution.*", _HALF, "(value|gradient) .*",
        "sums are taken in float16, and on CPUs without instructions for bfloat16 in bfloat16: the weight's gradient of"
        " a conv1d is off by 283 halves of a unit in the last place, by float64; sums in float32 by less than 1"
        " (`findings/torch_conv_float16.py`, `findings/torch_conv_bfloat16.py`)",
    ),
    Loss("networks of convolutions", "branches|levels", _HALF, "gradient .*", "their gradients are added up like that"),
    Loss(
        "`layer_norm`", _F + "(native_)?layer_norm.*", _HALF, "gradient [12]",
        "rows are added up in the half type: of 64 rows the bias's gradient is off by 38 halves of a unit in the last"
        " place, by float64 (`findings/torch_layer_norm_bias.py`)",
    ),
    Loss(
        "`binary_cross_entropy`", _F + r"binary_cross_entropy( \d)?", "float16", "value .*",
        "logarithms, their products and the sum of the two are rounded to float16 one after another inside one kernel:"
        " 5.0688e-4, by float64 5.0728e-4",
    ),
    Loss(
        "`avg_pool2d`, `adaptive_avg_pool3d`", _F + "(adaptive_)?avg_pool[23]d.*", _HALF, "gradient .*",
        "what windows that overlap give to one element is added up in the half type: 0.01953, by float64 0.01870",
    ),
    Loss(
        "`native_batch_norm`", r"native_batch_norm \d+", _HALF, "value [12]",
        "the variance is rounded to the half type on its way: of numbers around 98.62 the inverse deviation is 0.2148,"
        " by float64 0.2157 (`findings/torch_batch_norm_deviation.py`)",
    ),
    Loss(
        "`histc`", r"histc \d+", _HALF, "value .*",
        "the bin of a number beside an edge is computed in the half type, so that the other bin counts it: 1, by"
        " float64 0",
    ),
    Loss(
        "`ctc_loss`", _F + "ctc_loss.*", "float32|bfloat16", "gradient .*",
        "sums of logarithms near the largest number overflow, and their differences are NaN, by float64 0.3456",
    ),
    Loss("`gelu`", r"F\.gelu", "bfloat16", "value .*", "the negative tail, as in float32 (`findings/torch_gelu.py`)"),
    Loss(
        "`grid_sample`, nearest", "grid_sample_nearest_.*", _HALF, "(value|gradient) .*",
        "coordinates are computed in the half type, so a point near the middle of two pixels takes the other: 97.5,"
        " by float64 100",
    ),
    Loss(
        "`grid_sample`", _F + "grid_sample(r_2d)?( .*)?", _HALF, "(value|gradient) .*",
        "weights of coordinates near the largest number are computed in the half type and overflow: NaN or 1.7e38 for"
        " a point outside of the image, by float64 0",
    ),
    Loss(
        "`interpolate`, linear and trilinear", _F + "interpolate[._](tri)?linear.*", _HALF, "value .*",
        "weights of a point that is nearly at a pixel are computed in the half type: 0.078125, by float64 0.0769231",
    ),
    Loss(
        "`polygamma` of order 1, and so the gradient of `digamma`", r"(special[._])?(polygamma.*|digamma|psi)",
        "float64", "(value|gradient) .*",
        "its asymptotic series ends at x^-7, where x is from 6 on: 0.534736085405 at 2.3, by mpmath 0.534736085145",
    ),
)  # fmt: skip
_SLOPE = (
    "torch's gradient is not the derivative of torch's function: {exact:.6g} in float64, and the difference quotient of"
    " the function, in float64, is {quotient:.6g}"
)


def explanation(row: dict[str, Any]) -> str:
    """Why torch is wrong in a row; empty if nothing is known, or if it is not torch that is wrong.

    Where torch's own float64 is off the centre of the ball, torch is wrong if its gradient is not the derivative of its
    function. Else it is not wrong where the same operations, each computed in float64 and rounded once, are outside.
    """
    if is_off(row):
        return _SLOPE.format(**row) if is_no_slope(row) else ""
    if row["stepped"]:
        return ""
    return next((loss.why for loss in LOSSES if loss.explains(row)), "")


def is_off(row: dict[str, Any]) -> bool:
    """Whether torch's own float64 is farther from the centre of the ball than the ball is wide."""
    return bool(abs(row["centre"] - row["exact"]) > row["width"])


def is_no_slope(row: dict[str, Any]) -> bool:
    """Whether the difference quotient of torch's function is nearer to the ball's centre than to torch's gradient."""
    return bool(abs(row["quotient"] - row["centre"]) < abs(row["quotient"] - row["exact"]))
