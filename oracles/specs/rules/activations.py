"""Aten operations that are activations: the functions of torch.nn.functional, with torch's slopes at their kinks.

What is hard here: torch does not evaluate each as a careful formula would, and its own result must be in the bound. So
a rule says what torch computes where that is less accurate, or both, as algorithms of one function (`among`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....reference import activations
from ....reference.algorithms import STORED, Algorithm
from ....reference.array import TWO_OVER_ROOT_PI, among, attach_slopes, constant, erf, sigmoid, store
from ....reference.condition import possibly
from .table import Rule, enter, may_store

#: Of GELU's approximation by tanh: √(2/π) and the factor of the cube.
_ROOT, _CUBE = math.sqrt(2.0 / math.pi), 0.044715


def _leaky(x: Any, slope: Any = 0.01) -> Any:
    return np.where(x > 0, x, x * slope)


def _normal_cdf(x: Any) -> Any:
    # Beside 1 an error function needs no digits of its own, and torch's vectorised one does not have them.
    return 0.5 * (1.0 + erf(x * math.sqrt(0.5), absolute=True))


def _inner(x: Any) -> Any:
    return _ROOT * (x + _CUBE * (x * x * x))


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + np.tanh(_inner(x)))
    return x * _normal_cdf(x)


def _gelu_backward(g: Any, x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        bent = np.tanh(_inner(x))
        slope = 0.5 * x * (1.0 - np.square(bent)) * (_ROOT * (1.0 + 3.0 * _CUBE * np.square(x)))
        return g * (0.5 * (1.0 + bent) + slope)
    density = np.exp(np.square(x) * -0.5) * (0.5 * math.sqrt(0.5) * TWO_OVER_ROOT_PI)
    return g * (_normal_cdf(x) + x * density)


def softplus(scaled: Any) -> Any:
    """log(1 + exp(x)) that overflows nowhere."""
    decay = np.exp(np.where(scaled < 0, scaled, -scaled))
    return np.where(scaled < 0, 0.0, scaled) + np.log1p(decay)


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scaled = x if beta == 1 else x * beta
    # Beyond the threshold the logarithm is not used, and its exponential may overflow.
    inside = np.where(scaled > threshold, 0.0, scaled)
    smooth = among([Algorithm(softplus, ""), Algorithm(lambda scaled: np.log1p(np.exp(scaled)), "")], inside)
    return np.where(scaled > threshold, x, smooth if beta == 1 else smooth / beta)


def _logit(x: Any, eps: float | None = None) -> Any:
    """log(x / (1 − x)); x that is no probability is moved by eps, or has a value and a slope of NaN."""
    texts: dict[str, Rule] = {
        "": lambda x: np.log(x / (1.0 - x)),
        STORED: lambda x: np.log(may_store(x / may_store(1.0 - x))),
    }
    ways = [Algorithm(text, name) for name, text in texts.items()]
    if eps is not None and eps >= 0:
        return among(ways, np.where(x < eps, eps, np.where(x > 1.0 - eps, 1.0 - eps, x)))
    outside = (x < 0) | (x > 1)
    lost = np.where(outside, x, 0.0) * np.where(possibly(outside), np.nan, 1.0)
    return np.where(outside, lost, among(ways, np.where(outside, 0.5, x)))


def _mish_as_it_reads(x: Any) -> Any:
    return x * np.tanh(_softplus(x))


def _mish_by_sigmoid(x: Any) -> Any:
    """With the slope tanh s + x σ(x) (1 − tanh² s), s = softplus(x), whose σ is 0 where exp(−x) overflows."""
    value = constant(x)
    bent = np.tanh(softplus(value))
    return attach_slopes(value * bent, (x, bent + value * sigmoid(value) * (1.0 - np.square(bent))))


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    def below(x: Any) -> Any:
        # For positive x the exponential is not used, and may overflow.
        return np.expm1(np.where(x <= 0, x * input_scale, 0.0)) * (alpha * scale)

    def bent_above(x: Any) -> Any:
        """At 0 a line of the same slope: the slope bends there, and its own slope is that of either side."""
        at_zero = x * (alpha * scale * input_scale)
        return np.where(x < 0, below(x), np.where(x == 0, at_zero, x * scale))

    return among([Algorithm(lambda x: np.where(x <= 0, below(x), x * scale), ""), Algorithm(bent_above, "")], x)


def _hardtanh(x: Any, least: float = -1.0, most: float = 1.0) -> Any:
    """As a clamp, but with slope 0 at the ends."""
    return np.where(x <= least, least, np.where(x >= most, most, x))


def _rrelu(x: Any, noise: Any, lower: float = 0.125, upper: float = 1.0 / 3.0, *training: Any) -> Any:
    """In evaluation: a leaky ReLU with the mean slope. In training torch draws random slopes."""
    if training and training[0]:
        raise NotImplementedError("rrelu draws random slopes in training; put it in evaluation")
    return _leaky(x, (lower + upper) / 2.0)


def _rrelu_backward(g: Any, x: Any, noise: Any, lower: float, upper: float, *rest: Any) -> Any:
    return np.where(x > 0, g, g * ((lower + upper) / 2.0))


def _glu_backward(g: Any, x: Any, dim: int = -1) -> Any:
    # torch keeps the sigmoid in the place of the gradient, and so in its dtype.
    first, second = np.split(x, 2, axis=dim)
    gate = store(sigmoid(second), "", always=False)
    return np.concatenate([g * gate, g * (first * ((1.0 - gate) * gate))], axis=dim)


def _of_saved(slope: Rule) -> Rule:
    """The backward of a function from its saved result; some kernels of half types store its steps."""
    ways = [Algorithm(slope, ""), Algorithm(lambda g, y: g * store(slope(1.0, y), always=False), STORED)]
    return lambda g, y: among(ways, g, y)


enter(
    {
        "gelu": _gelu,
        "gelu_backward": _gelu_backward,
        "silu": lambda x: x * sigmoid(x),
        "softplus": _softplus,
        "logit": _logit,
        "mish": lambda x: among([Algorithm(_mish_as_it_reads, ""), Algorithm(_mish_by_sigmoid, "")], x),
        "elu": _elu,
        "celu": lambda x, alpha=1.0: _elu(x, alpha, 1.0, 1.0 / alpha),
        "leaky_relu": _leaky,
        "hardswish": lambda x: x * np.where(x <= -3.0, 0.0, np.where(x < 3.0, x + 3.0, 6.0)) / 6.0,
        "hardsigmoid": lambda x: np.where(x <= -3.0, 0.0, np.where(x >= 3.0, 1.0, (x + 3.0) / 6.0)),
        "hardtanh": _hardtanh,
        "threshold": lambda x, least, value: np.where(x <= least, value, x),
        "softshrink": lambda x, at=0.5: np.where(x > at, x - at, np.where(x < -at, x + at, np.where(x == x, 0.0, x))),
        "hardshrink": lambda x, at=0.5: np.where((x >= -at) & (x <= at), 0.0, x),
        "hardshrink_backward softshrink_backward": lambda g, x, at: np.where((x >= -at) & (x <= at), 0.0, g),
        "rrelu_with_noise": _rrelu,
        "rrelu_with_noise_functional": lambda x, noise, *rest: (_rrelu(x, noise, *rest), noise),
        "rrelu_with_noise_backward": _rrelu_backward,
        "glu_backward": _glu_backward,
        "sigmoid_backward": _of_saved(lambda g, y: g * (y * (1.0 - y))),
        "log_sigmoid_forward": activations.log_sigmoid_forward,
        "log_sigmoid_backward": activations.log_sigmoid_backward,
    }
)
