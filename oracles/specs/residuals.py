"""Operations on what is judged by its residual: it is moved as a whole, or what holds all evaluations is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...reference.dtypes import dtype_name
from ...reference.formats import FORMATS
from ...reference.whole import interval
from ..bound.laws.enclosures import enclose
from ..bound.laws.residual import Residual
from ..bound.laws.turned import OpenBasisError, Turned, are_vectors, multiply, turned
from .calls import UntraceableError
from .lines import line_of
from .rules import MOVES, RULES
from .rules.table import overloads

_BY_RESIDUAL = (
    "a factor or a solution, which is known by its residual alone; give that as a result, and what follows by a spec of"
    " its own, which takes it as an argument"
)
_TIMES, _DIVIDED, _PRODUCTS = map(overloads, ("mul.Tensor mul.Scalar", "div.Tensor div.Scalar", "mm bmm mv"))


def require_digits(node: torch.fx.Node, reading: Any) -> None:
    """Refuse a factor or a solution in fewer digits than the contract of the reading has, whose law would be wrong."""
    fmt = FORMATS[dtype_name(pytree.tree_leaves(node.meta["val"])[0].dtype)]
    contract = getattr(reading, "contract", None)
    if contract is not None and fmt.precision < contract.accumulate.precision:
        why = "and the inputs are of more digits; hand those in as they are used there"
        raise UntraceableError(f"it uses {node.target}{line_of(node)} in {fmt.name}, {why}")


def of_residuals(
    node: torch.fx.Node, args: Any, kwargs: Mapping[str, Any], reading: Any, apply: Callable[..., Any]
) -> Any:
    """The result for operands that are judged by their residuals, at other places; or None, and operands in numbers.

    Args:
        node, args, kwargs: an operation with such operands. reading: an array of the reading. apply: evaluates a rule.
    """
    first, *rest = args
    place = f"it uses {node.target}{line_of(node)} of"

    def move(x: Any) -> Any:
        return apply(RULES[node.target], (x, *rest), kwargs)

    def read(value: Any) -> Any:
        if not isinstance(value, Residual):
            return value
        ends = enclose(value)
        if ends is None:
            raise UntraceableError(f"{place} {_BY_RESIDUAL}")
        return interval(*ends, reading)

    if node.target in MOVES and isinstance(first, Residual):
        try:
            return first.moved(move), args, kwargs
        except ValueError:  # Of some elements alone nothing is known but their numbers, or which vectors they are.
            if are_vectors(first):
                return turned(first, reading).moved(move), args, kwargs
    elif any(map(are_vectors, args)):
        try:
            pair = [turned(x, reading) if are_vectors(x) else read(x) for x in args]
            return _of_vectors(node.target, pair, reading), args, kwargs
        except OpenBasisError as err:
            raise UntraceableError(f"{place} {err}") from err
    return None, *pytree.tree_map(read, (args, dict(kwargs)))


def _of_vectors(target: Any, pair: list[Any], reading: Any) -> Any:
    if target in _PRODUCTS and len(pair[1].shape) == 1:
        return _move(multiply(pair[0], _move(pair[1], lambda x: x[..., None]), reading), lambda x: x[..., 0])
    if target in _PRODUCTS:
        return multiply(pair[0], pair[1], reading)
    if target in _TIMES:
        pair.sort(key=lambda x: not isinstance(x, Turned))
    if target not in (*_TIMES, *_DIVIDED) or not isinstance(pair[0], Turned) or isinstance(pair[1], Turned):
        raise OpenBasisError
    return pair[0].scaled(pair[1], target in _DIVIDED)


def _move(x: Any, move: Callable[[Any], Any]) -> Any:
    return x.moved(move) if isinstance(x, Turned) else move(x)
