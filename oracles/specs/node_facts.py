"""What is known of the nodes of a spec's graph before it is evaluated: dtypes, and what values they depend on."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...reference.dtypes import dtype_name
from ...reference.formats import FORMATS
from .associations import RESULT, Scans
from .rules import MOVES, RESIDUALS, RULES
from .storage import is_floating

_aten = torch.ops.aten
#: Operations that give memory as it is, and those that change its size and keep its elements as far as they go.
_TAKING = {
    _aten.empty.memory_format, _aten.empty_permuted.default, _aten.empty_strided.default,
    _aten.new_empty_strided.default,
}  # fmt: skip
RESIZING = {_aten.resize_as.default, _aten.resize.default}


def is_within(node: torch.fx.Node) -> bool:
    """Whether a node is a part of an operation of the spec that torch has decomposed."""
    return _operation_of(node) != str(node.target)


def _operation_of(node: torch.fx.Node) -> str:
    # The metadata has the name of the operation, in some versions of torch as a text and no object.
    return str(node.meta.get("original_aten") or node.target)


def narrow_dtypes(graph: torch.fx.GraphModule) -> dict[torch.fx.Node, str]:
    """The dtype of the operation of the spec that each node belongs to, where that is floating.

    An operation on half types may compute in a wider type inside itself. Its operands and its result alone are stored,
    so its dtype is the narrowest of its nodes and of their operands.
    """
    dtypes: dict[torch.fx.Node, str] = {}
    for (_, within), nodes in itertools.groupby(list(graph.graph.nodes), lambda n: (_operation_of(n), is_within(n))):
        group = list(nodes)
        if not within:
            dtypes.update((node, _narrowest_of([node])) for node in group)
            continue
        name = _narrowest_of([each for node in group for each in (node, *node.all_input_nodes)])
        dtypes.update(dict.fromkeys(group, name))
    return dtypes


def _narrowest_of(nodes: Sequence[torch.fx.Node]) -> str:
    """The name of the narrowest floating dtype of the values of nodes, "" where none is floating."""
    leaves = pytree.tree_leaves([node.meta.get("val") for node in nodes])
    dtypes = {x.dtype for x in leaves if isinstance(x, torch.Tensor) and is_floating(x.dtype)}
    return min(map(dtype_name, dtypes), key=lambda name: FORMATS[name].precision if name in FORMATS else 0, default="")


def only_moves(node: torch.fx.Node) -> bool:
    """Whether a node only moves elements; one of several results, whether all of them were only moved."""
    source = node.args[0] if node.target is operator.getitem else node
    return isinstance(source, torch.fx.Node) and source.target in MOVES


def last_nodes(graph: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """The nodes that the results are made of by moving elements alone, and the results themselves."""
    last: set[torch.fx.Node] = set()
    for node in reversed(graph.graph.nodes):
        if node.op == "output" or (node in last and only_moves(node)):
            last.update(node.all_input_nodes)
    return last


def moving_nodes(graph: torch.fx.GraphModule) -> set[Any]:
    """The nodes whose values depend on floating inputs."""
    nodes: set[Any] = set()
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        is_input = node.op == "placeholder" and (not isinstance(value, torch.Tensor) or is_floating(value.dtype))
        if is_input or not nodes.isdisjoint(node.all_input_nodes):
            nodes.add(node)
    return nodes


def handed_on(graph: torch.fx.GraphModule) -> set[Any]:
    nodes: set[Any] = set()
    for node in graph.graph.nodes:
        moves = node.target in MOVES and nodes.issuperset(node.all_input_nodes)
        if moves or node.op in ("placeholder", "get_attr"):
            nodes.add(node)
    return nodes


def dtype_of(node: torch.fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def gives_floating(node: torch.fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(leaf, torch.Tensor) and is_floating(leaf.dtype) for leaf in leaves)


def name_of(node: torch.fx.Node) -> str:
    """The name of an operation as users know it, "softmax" of `_softmax.default`; empty for another node."""
    name = str(getattr(node.target, "overloadpacket", "")).rpartition(".")[2] if node.op == "call_function" else ""
    return name.lstrip("_").removeprefix("native_")


def is_complex(node: torch.fx.Node) -> bool:
    """Whether an operation gives a complex tensor."""
    values = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)


def takes_memory(node: torch.fx.Node) -> bool:
    """Whether a node gives memory, or some of it, that nothing has written."""
    return node.target in _TAKING or node.target in RESIZING


def draws(node: torch.fx.Node) -> bool:
    """Whether an operation draws; one that has a rule is read as what it is in evaluation."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and node.target not in RULES


def drawing_nodes(graph: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """The operations that draw, and those that compute from what is drawn."""
    nodes: set[torch.fx.Node] = set()
    for node in graph.graph.nodes:
        if draws(node) or not nodes.isdisjoint(node.all_input_nodes):
            nodes.add(node)
    return nodes


def why_without_derivatives(graph: torch.fx.GraphModule) -> str:
    """Why no derivative of a spec is judged; empty where derivatives are."""
    reached = set[torch.fx.Node]()
    for node in reversed(graph.graph.nodes):
        if node.op != "output" and (node not in reached or not gives_floating(node)):
            continue
        if node.target in RESIDUALS:
            return "the spec has a factor or a solution, known by its residual, of which no gradient is judged"
        reached.update(node.all_input_nodes)
    if graph.graph.find_nodes(op="call_function", target=RESULT):
        return "the spec scans in any order by associative_scan, of which no gradient is judged"
    return ""


class GraphFacts:
    """What readings of a graph need to know of its nodes.

    Attributes:
        moving: those whose values depend on floating inputs. drawing: see `drawing_nodes`.
        handed_on: those whose elements are those of inputs, at other places perhaps.
        last: those that the results are made of by moving elements alone.
        dtypes: the dtype of the operation of the spec that each belongs to.
        taking: those that give memory that nothing has written. scans: each way of these has a reader of its own.
    """

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        self.moving, self.drawing, self.handed_on = moving_nodes(graph), drawing_nodes(graph), handed_on(graph)
        self.last, self.dtypes = last_nodes(graph), narrow_dtypes(graph)
        self.taking, self.scans = [node for node in graph.graph.nodes if takes_memory(node)], Scans(graph)


#: The facts of graphs that have been read.
Known = dict[torch.fx.GraphModule, GraphFacts]
