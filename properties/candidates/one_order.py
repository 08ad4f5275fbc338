"""What is known of the operands of a call where some are not finite, and which specs have one order of evaluation.

What this is for: infinities that meet give a NaN or an infinity by the order in which they meet, so of a sum or a
product of matrices nobody can ask for torch's own. Of x + 1 one can: there is nothing to reorder.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from .arguments import CallArguments, OperandFacts, State
from .specification import Specification

_ATEN = torch.ops.aten
#: Operations that move elements, or round them to another dtype.
_MOVES = frozenset(
    {_ATEN.view, _ATEN.reshape, _ATEN._unsafe_view, _ATEN.expand, _ATEN.permute, _ATEN.transpose, _ATEN.t, _ATEN.alias}
    | {_ATEN.squeeze, _ATEN.unsqueeze, _ATEN.slice, _ATEN.select, _ATEN.cat, _ATEN.copy, _ATEN._to_copy, _ATEN.clone}
)


def operands_of(spec: Specification, arguments: CallArguments, state: State) -> OperandFacts:
    """What is known of the operands of a call."""
    if arguments.finite:
        return OperandFacts.FINITE
    if not spec.numpy and in_one_order(spec.traced_at(arguments, state).graph):
        return OperandFacts.IN_ONE_ORDER
    return OperandFacts.WITH_INFINITIES if arguments.infinite else OperandFacts.WITH_NANS


def in_one_order(graph: torch.fx.GraphModule) -> bool:
    """Whether each element is made by a chain of functions of one number each, but for one of several at most.

    Where nothing is used twice, and two numbers meet once at most, no sum or product can be taken in another order. A
    factor that is put into a bracket or taken out of it makes the same infinity.
    """
    meetings = 0
    for node in graph.graph.nodes:
        users = [user for user in node.users if user.op != "output"]
        if node.op == "output" or (not users and node.op != "call_function"):
            continue
        if len(users) > 1 or sum(_operands(user).count(node) for user in users) > 1:
            return False
        if node.op != "call_function" or getattr(node.target, "overloadpacket", None) in _MOVES:
            continue
        if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
            return False
        meetings += max(len(_operands(node)) - 1, 0)
    return meetings <= 1


def _operands(node: torch.fx.Node) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(leaf, torch.fx.Node)]
