"""Operations that draw random numbers: what each of them may give, whatever the generator is.

Integers and truth values that are drawn are a `Draw`, of which a reading takes one, as of indices that rounding leaves
open. Of floating numbers that are drawn the ends are known; a comparison with one, or its floor, is a `Draw` again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...reference.array import Array, constant
from ...reference.condition import condition, is_open, possibly, surely
from ...reference.draw import Draw
from ...reference.whole import unbounded
from .rules.table import overloads

#: How far normal numbers are from their mean, in standard deviations, and the largest exponential one, in means. Beyond
#: lies one of 10^22; so where 10^12 are drawn, one is refused with a probability of 2e-11.
_NORMAL, _EXPONENTIAL = 10.0, 53.0
#: At most so many whole numbers are told apart where one is made of a floating number that was drawn.
_FEW = 4
_WHOLE_NUMBERS = set(overloads("floor ceil round trunc"))


def drawn_by(node: torch.fx.Node, args: Any, kwargs: Any, reading: Any) -> Any:
    """What an operation that draws may give: a `Draw`, or an array of a reading; None where it is not known here.

    Args:
        node, args, kwargs: the operation. reading: an array of the reading.
    """
    rule = _RULES.get(getattr(node.target, "overloadpacket", None))
    return None if rule is None else rule(tuple(node.meta["val"].shape), args, kwargs, reading)


def decided_by_draw(node: torch.fx.Node, result: Any) -> Draw | None:
    """The integers or truth values that an operation makes of numbers that are drawn; None where they are no few.

    Args:
        node: the operation. result: by its rule.
    """
    if is_open(result):
        return Draw(surely(result).astype(np.int64), possibly(result).astype(np.int64))
    if node.target not in _WHOLE_NUMBERS or not isinstance(result, Array):
        return None
    low, high = constant(result).ends()
    if low.dtype == object or not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    # The ends are the next numbers outside.
    low, high = np.ceil(low), np.floor(high)
    if not ((high - low < _FEW) & (np.abs(low) < 2.0**53) & (np.abs(high) < 2.0**53)).all():
        return None
    return Draw(low.astype(np.int64), high.astype(np.int64))


def _toss(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Draw:
    share = float(args[1]) if len(args) > 1 else kwargs["p"]
    return Draw(np.full(shape, int(share >= 1.0)), np.full(shape, int(share > 0.0)))


def _uniform(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Any:
    """Numbers from the first end to the second, which rounding may reach."""
    bounds = [x for x in args[1:3] if isinstance(x, (int, float))]
    low, high = (0.0, 1.0) if len(bounds) < 2 else bounds
    return _between(shape, low, high, reading)


def _unit(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Any:
    return _between(shape, 0.0, 1.0, reading)


def _between(shape: tuple[int, ...], low: float, high: float, reading: Any) -> Any:
    either = condition(np.zeros(shape, bool), np.ones(shape, bool), reading)
    return np.where(either, reading.lift(np.full(shape, low)), reading.lift(np.full(shape, high)))


def _normal(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Any:
    return _between(shape, -_NORMAL, _NORMAL, reading)


def _normal_about(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Any:
    """Normal numbers of a mean and a standard deviation, each of which may be a tensor."""
    mean, deviation = (*args, *(0.0, 1.0)[len(args) :])[:2]
    return _normal(shape, args, kwargs, reading) * deviation + mean


def _log_normal(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Any:
    mean, deviation = [*args[1:], 1.0, 2.0][:2] if len(args) != 2 else (args[1], 2.0)
    low, high = (math.exp(mean + sign * _NORMAL * deviation) for sign in (-1, 1))
    return _between(shape, low, high, reading)


def _exponential(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Any:
    """Numbers that are not negative; 0 is one that generators of few bits give."""
    rate = args[1] if len(args) > 1 else kwargs.get("lambd", 1.0)
    return _between(shape, 0.0, _EXPONENTIAL / rate, reading)


def _integers(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Draw:
    bounds = [x for x in args if isinstance(x, int)]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return Draw(np.full(shape, low), np.full(shape, high - 1))


def _permutation(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Draw:
    possible = np.ones(shape, dtype=bool)
    return Draw(np.zeros(shape, np.int64), np.full(shape, shape[0] - 1), possible, distinct=True)


def _sample(shape: tuple[int, ...], args: Any, kwargs: Any, reading: Any) -> Draw:
    weights, with_return = args[0], args[2] if len(args) > 2 else kwargs.get("replacement", False)
    _, high = constant(weights).ends() if isinstance(weights, Array) else (weights, weights)
    possible = np.asarray(high > 0)
    return Draw(np.zeros(shape, np.int64), np.full(shape, possible.shape[-1] - 1), possible, not with_return)


_aten = torch.ops.aten
_RULES: dict[Any, Callable[..., Any]] = {
    _aten.bernoulli: _toss,
    _aten.rand: _unit,
    _aten.rand_like: _unit,
    _aten.uniform: _uniform,
    _aten.randint: _integers,
    _aten.randperm: _permutation,
    _aten.multinomial: _sample,
    _aten.randn: _normal,
    _aten.randn_like: _normal,
    _aten.normal: _normal_about,
    _aten.normal_functional: lambda shape, args, kwargs, reading: _normal_about(shape, args[1:], kwargs, reading),
    _aten.log_normal: _log_normal,
    _aten.exponential: _exponential,
    _aten.cauchy: lambda shape, args, kwargs, reading: unbounded(reading, shape),
}


def as_numbers(numbers: Any, dtype: torch.dtype, reading: Any) -> Any:
    """Integers of a draw as what the operation gives: truth values, integers, or floating numbers.

    A mask of zeros may be applied as a product or by leaving out.
    """
    if dtype == torch.bool:
        return numbers != 0
    if not dtype.is_floating_point:
        return numbers
    lifted = reading.lift(numbers.astype(np.float64))
    if isinstance(lifted, Array):
        lifted.leave_out(numbers == 0)
    return lifted
