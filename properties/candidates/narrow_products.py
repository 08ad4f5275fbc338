"""A spec whose products under autocast may be those of matrices, wherever somebody may write them so.

Autocast casts the factors of products of matrices, and stores their results in the half type; products of elements that
are added up afterwards it leaves alone, and sums as well. Both are one contraction, and a candidate that has the other
of the two is cast in other places. So factors of all that may be written as a contraction may be rounded, and what they
add up to: products that are summed, sums of two products, as in a recurrence, and interpolations.

A sum of squares, and a sum of one operand, are left as they are. They are what norms are made of, which autocast keeps
in float32, and who rounds all of a norm would be as near as who multiplies a row by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from ...oracles.specs import rewritten
from ...oracles.specs.node_facts import name_of
from .arguments import CallArguments, State
from .rewrites import MOVES, Rewritten
from .specification import Specification

_PRODUCTS = ("mul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm")


def with_narrow_products(under: Specification, arguments: CallArguments, state: State) -> Specification:
    """The spec with factors and results of all contractions in bfloat16, as far as rounding goes: a ball has both.

    Args:
        under: the spec under autocast. arguments, state: where it is traced.

    Raises:
        SpecError, UntraceableError: it cannot be traced.
    """
    traced = under.traced_at(arguments, state)
    changes: dict[Node, Callable[..., Any]] = {}
    for node in traced.graph.graph.nodes:
        operands = [_behind_moves(each) for each in node.all_input_nodes]
        if name_of(node).startswith("upsample"):
            # A matrix of constants for each of two dims is rounded, and what it gives.
            changes[node] = _narrowed(node.target, 4)
        elif _adds_products(node, operands):
            changes[node] = _narrowed(node.target)
            changes |= {each: _narrowed(each.target) for each in operands if name_of(each) == "mul"}
    run = Rewritten(traced.graph, changes).run
    tensors = [t.detach() for t in (*state.values(), *arguments.tensors)]

    def flat(*operands: torch.Tensor) -> Any:
        return run(*operands, enable_io_processing=False)

    return under.with_trace(rewritten(traced, flat, tensors))


def _adds_products(node: Node, operands: list[Node]) -> bool:
    if name_of(node) in ("sum", "mean"):
        return name_of(operands[0]) == "mul" and len(operands[0].all_input_nodes) == 2
    return name_of(node) in ("add", "sub") and len(operands) == 2 and all(name_of(x) in _PRODUCTS for x in operands)


def _behind_moves(node: Node) -> Node:
    while name_of(node) in MOVES:
        node = node.all_input_nodes[0]
    return node


def _narrowed(operation: Any, times: int = 1) -> Callable[..., Any]:
    """An operation whose float32 operands are rounded so many times, and its result once."""

    def narrow(x: Any) -> Any:
        return x.bfloat16().to(x.dtype) if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x

    def narrow_often(x: Any) -> Any:
        return functools.reduce(lambda y, _: narrow(y), range(times), x)

    return lambda *args, **kwargs: narrow(operation(*map(narrow_often, args), **kwargs))
