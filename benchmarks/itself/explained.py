"""Results of torch that are outside for a reason that is known, so that no bound should take them in."""

from __future__ import annotations

import re
from typing import Any

#: (functions, dtypes, what) as patterns -> what torch's kernel does there that the contract does not allow.
EXPLAINED: dict[tuple[str, str, str], str] = {
    ("erf( .*)?", "bfloat16|float16", "value .*"): (
        "in vectors a polynomial with an absolute error: erf(2^-22) is 4.17e-7, by mpmath 2.69e-7"
        " (findings/torch_erf_half.py)"
    ),
    (r"fmod .*|(fmod|remainder) \d", "float32|bfloat16", "value .*"): (
        "in vectors the quotient of the largest numbers overflows: fmod(3e38, 0.7) is NaN, by mpmath 0.2078"
        " (findings/torch_fmod.py)"
    ),
    (
        r"(F\.|nn\.functional\.)?conv(_transpose)?\d?d.*|conv2d_depthwise|conv_transpose.*",
        "bfloat16|float16",
        "(value|gradient) .*",
    ): (
        "sums are taken in float16, and on CPUs without instructions for bfloat16 in bfloat16: the weight's gradient of"
        " a conv1d is off by 283 halves of a unit in the last place, by float64; sums in float32 by less than 1"
        " (findings/torch_conv_float16.py)"
    ),
    (
        "branches|levels",
        "bfloat16|float16",
        "gradient .*",
    ): "its convolutions add their gradients in the half type, as above",
    (r"(nn\.functional\.|F\.)?(native_)?layer_norm.*", "bfloat16|float16", "gradient [12]"): (
        "rows are added up in the half type: of 64 rows the bias's gradient is off by 38 halves of a unit in the last"
        " place, by float64 (findings/torch_layer_norm_bias.py)"
    ),
    (r"(nn\.functional\.|F\.)?binary_cross_entropy \d|F\.binary_cross_entropy", "float16", "value .*"): (
        "logarithms, their products and the sum of the two are rounded to float16 one after another inside one kernel:"
        " 5.0688e-4 where float64 has 5.0728e-4"
    ),
    (r"(nn\.functional\.)?(adaptive_)?avg_pool[23]d.*", "bfloat16|float16", "gradient .*"): (
        "what windows that overlap give to one element is added up in the half type: 0.01953 where float64 has 0.01870"
    ),
    (r"native_batch_norm \d+", "bfloat16|float16", "value [12]"): (
        "the variance is rounded to the half type on its way: of numbers around 98.62 the inverse deviation is 0.2148,"
        " by float64 0.2157"
    ),
    (r"histc \d+", "bfloat16|float16", "value .*"): (
        "the bin of a number beside an edge is computed in the half type, so that the other bin counts it"
    ),
    (r"(nn\.functional\.)?ctc_loss.*", "float32|bfloat16", "gradient .*"): (
        "sums of numbers near the largest overflow, and their differences are NaN, where float64 has 0.3456"
    ),
    ("F.gelu", "bfloat16", "value .*"): "the negative tail, as in float32 (findings/torch_gelu.py)",
    ("grid_sample_nearest_.*", "bfloat16|float16", "(value|gradient) .*"): (
        "coordinates are computed in the half type, so a point near the middle of two pixels takes the other:"
        " 97.5 where float64 takes 100"
    ),
    (r"(F\.|nn\.functional\.)?grid_sample(r_2d)?( .*)?", "bfloat16|float16", "(value|gradient) .*"): (
        "weights of coordinates near the largest number are computed in the half type and overflow: NaN or 1.7e38 for"
        " a point outside of the image, which is 0 by float64"
    ),
    ("addbmm.*", "float16", "value .*"): (
        "a sum beyond float16's range comes out with the sign of a partial sum: inf, by float64 -1.2e7"
    ),
    (r"(nn\.functional\.)?interpolate[._](tri)?linear.*", "bfloat16|float16", "value .*"): (
        "the weights of a point that is nearly at a pixel are computed in the half type: 0.078125, by float64 0.0769231"
    ),
}

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
    words = (row["name"], row["dtype"], row["what"])
    for patterns, why in EXPLAINED.items():
        if all(re.fullmatch(pattern, word) for pattern, word in zip(patterns, words, strict=True)):
            return why
    return ""


def is_off(row: dict[str, Any]) -> bool:
    """Whether torch's own float64 is farther from the centre of the ball than the ball is wide."""
    return bool(abs(row["centre"] - row["exact"]) > row["width"])


def is_no_slope(row: dict[str, Any]) -> bool:
    """Whether the difference quotient of torch's function says that torch's gradient is off, and the ball's is not.

    It errs by 2^-30 or so, so that a quotient in the middle between the two tells nothing.
    """
    return bool(8.0 * abs(row["quotient"] - row["centre"]) < abs(row["quotient"] - row["exact"]))
