"""Aten operations that are elementwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ....reference.array import sigmoid
from .table import RULES, Rule, enter

aten = torch.ops.aten


def _unchanged(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _with_alpha(f: Rule) -> Rule:
    return lambda a, b, alpha=1: f(a, b if alpha == 1 else b * alpha)


def _power(x: Any, exponent: Any) -> Any:
    return np.square(x) if exponent == 2 else np.power(x, exponent)


# Of a spec in torch's words the slope at a kink is the one that torch takes there, and no other.


def _relu(x: Any) -> Any:
    return np.where(x <= 0, 0.0, x)


def _absolute(x: Any) -> Any:
    return np.where(x == 0, 0.0, np.absolute(x))


def _clamp(x: Any, least: Any = None, most: Any = None) -> Any:
    x = x if least is None else np.where(x < least, least, x)
    return x if most is None else np.where(x > most, most, x)


def _between(x: Any, least: float = -1.0, most: float = 1.0) -> Any:
    """hardtanh: as a clamp, but with slope 0 at the ends."""
    return np.where(x <= least, least, np.where(x >= most, most, x))


def _shared(extreme: np.ufunc) -> Rule:
    """A maximum or minimum of two whose slope is shared by operands that are equal."""
    return lambda a, b: np.where(a == b, 0.5 * a + 0.5 * b, extreme(a, b))


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scaled = x if beta == 1 else x * beta
    decay = np.exp(np.where(scaled < 0, scaled, -scaled))
    smooth = np.where(scaled < 0, 0.0, scaled) + np.log1p(decay)
    return np.where(scaled > threshold, x, smooth if beta == 1 else smooth / beta)


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    # For positive x the exponential is not used, and may overflow.
    below = np.expm1(np.where(x <= 0, x * input_scale, 0.0)) * (alpha * scale)
    return np.where(x <= 0, below, x * scale)


# A formula is about real numbers. So operations that change only the dtype, the memory or the graph leave a value as
# it is, and the rounding that comes with a dtype is the business of the contract.
enter(
    _unchanged, aten.clone.default, aten.detach.default, aten.alias.default, aten._to_copy.default,
    aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.contiguous.default, aten.positive.default,
)  # fmt: skip
enter(_with_alpha(np.add), aten.add.Tensor, aten.add.Scalar)
enter(_with_alpha(np.subtract), aten.sub.Tensor, aten.sub.Scalar)
enter(_with_alpha(lambda a, b: b - a), aten.rsub.Scalar, aten.rsub.Tensor)
enter(np.multiply, aten.mul.Tensor, aten.mul.Scalar)
enter(np.divide, aten.div.Tensor, aten.div.Scalar)
enter(np.greater, aten.gt.Scalar, aten.gt.Tensor)
enter(np.greater_equal, aten.ge.Scalar, aten.ge.Tensor)
enter(np.less, aten.lt.Scalar, aten.lt.Tensor)
enter(np.less_equal, aten.le.Scalar, aten.le.Tensor)
enter(np.equal, aten.eq.Scalar, aten.eq.Tensor)
enter(np.not_equal, aten.ne.Scalar, aten.ne.Tensor)
enter(np.logical_not, aten.logical_not.default, aten.bitwise_not.default)
enter(np.logical_and, aten.logical_and.default, aten.bitwise_and.Tensor)
enter(np.where, aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf)
RULES.update(
    {
        aten.neg.default: np.negative,
        aten.abs.default: _absolute,
        aten.exp.default: np.exp,
        aten.expm1.default: np.expm1,
        aten.log.default: np.log,
        aten.log1p.default: np.log1p,
        aten.sqrt.default: np.sqrt,
        aten.rsqrt.default: lambda x: 1.0 / np.sqrt(x),
        aten.reciprocal.default: lambda x: 1.0 / x,
        aten.tanh.default: np.tanh,
        aten.sigmoid.default: sigmoid,
        aten.silu.default: lambda x: x * sigmoid(x),
        aten.square.default: np.square,
        aten.pow.Tensor_Scalar: _power,
        aten.relu.default: _relu,
        aten.leaky_relu.default: lambda x, slope=0.01: np.where(x > 0, x, x * slope),
        aten.hardtanh.default: _between,
        aten.elu.default: _elu,
        aten.softplus.default: _softplus,
        aten.clamp.default: _clamp,
        aten.clamp_min.default: _clamp,
        aten.clamp_max.default: lambda x, most: _clamp(x, None, most),
        aten.maximum.default: _shared(np.maximum),
        aten.minimum.default: _shared(np.minimum),
    }
)
