"""torch's operators that take functions, `scan`, `while_loop`, `cond` and `map`, traced as what they call in turn.

How often a loop runs, and which branch is taken, may depend on integers and truth values that a spec is given, but as
everywhere not on floating numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.map import map_impl
from torch.utils import _pytree as pytree


def _scan(combine: Callable[..., Any], init: Sequence[Any], rows: Sequence[Any], rest: Sequence[Any] = ()) -> Any:
    carried, results = list(init), []
    for i in range(len(rows[0])):
        out = combine(*carried, *(each[i] for each in rows), *rest)
        carried = list(out[: len(init)])
        results.append(out[len(init) :])
    return [*carried, *(torch.stack(each) for each in zip(*results, strict=True))]


def _loop(condition: Any, body: Callable[..., Any], carried: Sequence[Any], rest: Sequence[Any] = ()) -> Any:
    while bool(condition(*carried, *rest)):
        carried = body(*carried, *rest)
    return tuple(carried)


def _branch(condition: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    return yes(*operands) if bool(condition) else no(*operands)


def _map(function: Callable[..., Any], rows: Sequence[Any], rest: Sequence[Any], mutated_arg_indices: str = "") -> Any:
    if mutated_arg_indices:  # torch 2.15 names operands that the function writes to
        raise NotImplementedError(f"{mutated_arg_indices=}: a function under map must not write to its operands")
    results = [function(*(each[i] for each in rows), *rest) for i in range(len(rows[0]))]
    return pytree.tree_map(lambda *each: torch.stack(each), *results)


#: What is traced in place of an operator.
LOOPS: dict[Any, Callable[..., Any]] = {
    torch.ops.higher_order.scan: _scan,
    torch.ops.higher_order.while_loop: _loop,
    torch.ops.higher_order.cond: _branch,
    map_impl: _map,
}
