"""torch's `associative_scan`: the order in which elements are combined is free, so every order is read.

What this is for: torch combines by a tree of its own, a kernel of one loop element after element, and one of many
threads in chunks. All are right, and in the formats of numbers they differ.

How it is read: what is combined of a range of elements is what is combined of its two parts, wherever it is cut. So
the ball of a range holds the balls of all cuts, and by induction what every order may give. That takes n³/6
combinations of n elements. Derivatives are not read: in reverse mode an element's cotangent is made of those of all
ranges that hold it.

What is hard here: the combine step is PyTorch of the spec, which may read tensors that are no arguments of it. So each
way is traced where the scan stands, between operations that mark its arguments and its results, and becomes a graph of
its own when the spec is read.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...reference.algorithms import Algorithm
from ...reference.array import Array, among, one_of_several, order_of
from .calls import UntraceableError
from .decisions import Decisions
from .rules.table import LIBRARY, RULES
from .storage import is_floating

#: torch's module of associative scans, which has the name of its function, and its scan by a tree.
SCANS: Any = importlib.import_module("torch._higher_order_ops.associative_scan")
_BY_TREE = SCANS.generic_associative_scan
#: Numbers that are combined at most; they take about ten seconds and a GiB.
_MOST = 2**24
_scans = itertools.count()


def _one_of_rows(x: Any) -> Any:
    """(k, *) -> (*): an evaluation may have any of the k rows, and another one wherever the result is used."""
    while np.shape(x)[0] > 1:
        # Of an odd number the row in the middle stands in both halves.
        half = (np.shape(x)[0] + 1) // 2
        x = one_of_several([Algorithm(lambda a, b: a, ""), Algorithm(lambda a, b: b, "")], x[:half], x[-half:])
    return x[0]


LIBRARY.define("operand_of_scan(Tensor x, int scan) -> Tensor")
LIBRARY.define("result_of_scan(Tensor by_tree, Tensor in_any_order, int scan) -> Tensor")
LIBRARY.define("one_of_rows(Tensor x) -> Tensor")
for _key in ("CPU", "Meta"):
    LIBRARY.impl("operand_of_scan", lambda x, scan: x.clone(), _key)
    LIBRARY.impl("result_of_scan", lambda by_tree, in_any_order, scan: by_tree.clone(), _key)
    LIBRARY.impl("one_of_rows", lambda x: x[0].clone(), _key)
_OPERAND = torch.ops.opassay_specs.operand_of_scan.default
RESULT = torch.ops.opassay_specs.result_of_scan.default
_ONE_OF_ROWS = torch.ops.opassay_specs.one_of_rows.default
#: Of complex numbers they are those of the parts.
OPERATIONS = (_OPERAND, RESULT, _ONE_OF_ROWS)


def _with_batch_last(x: Any, dim: int | None, size: int) -> Any:
    """A tensor with the dim of a batch as its last one."""
    return x.unsqueeze(-1).expand(*x.shape, size) if dim is None else x.movedim(dim, -1)


def _batched(operation: Any) -> Callable[..., Any]:
    """An operation under vmap: these read along the first dim alone, so that of the batch goes last."""

    def batch(info: Any, dims: Any, *args: Any) -> Any:
        operands = (
            _with_batch_last(x, dim, info.batch_size) if isinstance(x, torch.Tensor) else x
            for x, dim in zip(args, dims, strict=True)
        )
        return operation(*operands), -1

    return batch


for _operation in OPERATIONS:
    torch.library.register_vmap(_operation, _batched(_operation), lib=LIBRARY)
RULES[_OPERAND] = lambda x, scan: x
RULES[_ONE_OF_ROWS] = _one_of_rows


def scan_in_every_order(
    combine: Callable[..., Any], leaves: Sequence[Any], dim: int = 0, additional_inputs: Sequence[Any] = ()
) -> list[Any]:
    """What torch gives for an associative scan, marked as a result that other orders may give as well.

    Args:
        combine: (*heads, *tails, *additional_inputs) -> what is combined of two rows of elements, along the first dim.
        leaves: tensors (n, *) of elements. dim: 0, as torch has it.

    Raises:
        UntraceableError: there are too many elements for all orders.
    """
    count = leaves[0].shape[0]
    if count <= 2 or any(leaf.requires_grad for leaf in leaves):
        return list(_BY_TREE(combine, leaves, dim, additional_inputs))
    size = max(math.prod(leaf.shape[1:]) for leaf in leaves)
    if count**3 // 6 * size > _MOST:
        raise UntraceableError(
            f"it uses associative_scan of {count} elements of {size} numbers, whose orders cannot all be read: need"
            f" n³/6 · numbers <= {_MOST}; scan fewer, or write a loop or torch's `scan`, which have one order"
        )

    def step(*operands: Any) -> list[Any]:  # torch gives the one tensor of a scan of one as it is
        return pytree.tree_leaves(combine(*operands, *additional_inputs))

    scan, results = next(_scans), []
    for way in (_BY_TREE, _in_any_order):
        operands = [_OPERAND(leaf, scan) for leaf in leaves]
        results.append(way(step, operands))
    return [RESULT(*each, scan) for each in zip(*results, strict=True)]


def _in_any_order(combine: Callable[..., Any], leaves: Sequence[Any]) -> list[Any]:
    """What is combined of the elements from the first on, by ranges: of each range one of the results of all cuts."""
    count = leaves[0].shape[0]
    # Ranges stand by length and by start. `first[length]` is the place of the first of a length.
    ranges, first = list(leaves), {1: 0}
    for length in range(2, count + 1):
        first[length] = ranges[0].shape[0]
        starts = np.arange(count - length + 1)
        heads = np.add.outer([first[cut] for cut in range(1, length)], starts)
        tails = np.add.outer([first[length - cut] + cut for cut in range(1, length)], starts)
        places = [torch.from_numpy(each.ravel()) for each in (heads, tails)]
        joint = combine(*(each.index_select(0, place) for place in places for each in ranges))
        results = [_ONE_OF_ROWS(each.unflatten(0, heads.shape)) for each in joint]
        ranges = [torch.cat(each) for each in zip(ranges, results, strict=True)]
    prefixes = torch.tensor(list(first.values()))
    return [each.index_select(0, prefixes) for each in ranges]


class Way(NamedTuple):
    """One order of a scan.

    Attributes:
        graph: with an input for each operand, and one result. operands: nodes of the spec's graph.
    """

    graph: torch.fx.GraphModule
    operands: tuple[torch.fx.Node, ...]


class Scans:
    """The associative scans of a spec's graph.

    Attributes:
        ways: by the node of a result: torch's tree, and all orders.
        inside: nodes that are evaluated as parts of a way.
    """

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        self.ways: dict[torch.fx.Node, tuple[Way, ...]] = {}
        self.inside: set[torch.fx.Node] = set()
        for node in graph.graph.find_nodes(op="call_function", target=RESULT):
            *ends, scan = node.args
            regions = [_region(end, scan) for end in ends]
            self.inside.update(*regions)
            self.ways[node] = tuple(_way(graph, end, region) for end, region in zip(ends, regions, strict=True))

    def read(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any], reader: Callable[..., Any]) -> Any:
        """The result of a scan.

        Args:
            node: of the result. values: of the nodes of the spec's graph. reader: the class of readers of graphs.
        """
        ways = self.ways[node]
        operands = list(dict.fromkeys(each for way in ways for each in way.operands))
        # Indices and other numbers that are known are no operands of a choice of algorithms.
        moving = [each for each in operands if isinstance(values[each], Array)]

        if any(order_of(values[each]) for each in moving):
            raise UntraceableError("it scans in any order by associative_scan, of which no derivative is read")

        if not is_floating(node.meta["val"].dtype):  # What is combined without rounding is the same in every order.
            return _read_way(ways[0], [values[each] for each in ways[0].operands], reader)

        def formula_of(way: Way) -> Callable[..., Any]:
            def formula(*arrays: Any) -> Any:
                known = {**values, **dict(zip(moving, arrays, strict=True))}
                return _read_way(way, [known[each] for each in way.operands], reader)

            return formula

        return among([Algorithm(formula_of(way), "") for way in ways], *(values[each] for each in moving))


def _read_way(way: Way, operands: Sequence[Any], reader: Callable[..., Any]) -> Any:
    decisions = Decisions()
    (result,) = reader(way.graph, decisions).run(*operands)
    if decisions.open:
        raise UntraceableError("it uses associative_scan of a step that chooses by values, of which no order is read")
    return result


def _region(end: torch.fx.Node, scan: Any) -> dict[torch.fx.Node, None]:
    """The nodes from the marks of a scan's operands to a result, in the order of the graph."""
    within: dict[torch.fx.Node, bool] = {}  # whether a node is computed from such an operand
    stack = [end]
    while stack:
        node = stack[-1]
        before = [] if _is_operand(node, scan) else node.all_input_nodes
        open_ = [each for each in before if each not in within]
        if open_:
            stack += open_
            continue
        within[stack.pop()] = _is_operand(node, scan) or any(within[each] for each in before)
    return dict.fromkeys(node for node, is_inside in within.items() if is_inside)


def _is_operand(node: torch.fx.Node, scan: Any) -> bool:
    return node.target is _OPERAND and node.args[1] == scan


def _way(graph: torch.fx.GraphModule, end: torch.fx.Node, region: dict[torch.fx.Node, None]) -> Way:
    own = torch.fx.Graph()
    inputs: dict[torch.fx.Node, torch.fx.Node] = {}
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    outer = [each for node in region for each in node.all_input_nodes if each not in region]
    for source in dict.fromkeys(outer):
        inputs[source] = own.placeholder(source.name)
        inputs[source].meta = source.meta
    for node in region:
        copies[node] = own.node_copy(node, lambda each: copies[each] if each in copies else inputs[each])
    own.output((copies[end],))
    return Way(torch.fx.GraphModule(graph, own), tuple(inputs))
