"""The smallest piece of a compiled graph that is outside of its own bound when the same backend compiles it alone.

A piece is some of the graph's operations; what they take from others is a tensor of its own, as an eager run gives it.
So each piece is a graph like the whole, and is held in the same way. Delta debugging takes operations away, and then
elements of the inputs, as long as the piece stays outside.
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...oracles.programs.values import READABLE
from ...oracles.verdicts.verdict import quantity
from ...oracles.verdicts.violation import Outlier
from .call import DispatcherCall, Tensor, is_floating, tensors_in
from .compiled import GraphRegion, draws_numbers, whole_of
from .judging import CallJudge

#: Makes of a function what is run in its place.
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
#: Tries and seconds after which the smallest piece so far is taken.
TRIES, SECONDS = 80, 300.0
_SEEDS = 3


@dataclass(frozen=True)
class GraphPiece:
    """A piece of a compiled graph that is outside.

    Attributes:
        graph, inputs: of it. outlier: its worst element. seed: by which `torch.randn` gives the inputs; None where they
            have values of their own. operations: how many it has. about: the same in words, and how it was found.
    """

    graph: torch.fx.GraphModule
    inputs: tuple[Tensor, ...]
    outlier: Outlier
    seed: int | None = None
    operations: int = 0
    about: str = ""


def compile_by_inductor(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as torch's own compiler makes it."""
    return torch.compile(function, fullgraph=True, dynamic=False)


class _Spent(Exception):
    """There are no more tries or seconds."""


class PieceSearch:
    """Looks for the smallest piece of a graph that is outside."""

    def __init__(
        self, call: DispatcherCall, judge: CallJudge, compile_piece: Compile = compile_by_inductor,
        tries: int = TRIES, seconds: float = SECONDS,
    ) -> None:  # fmt: skip
        """
        Args:
            call: of a `GraphRegion` that is outside. judge: by which it is. tries, seconds: that the search may take.
        """
        self._call, self._judge, self._compile = call, judge, compile_piece
        self._left, self._end, self._tries = tries, time.monotonic() + seconds, tries
        self._best: GraphPiece | None = None
        self._whole: torch.fx.GraphModule = call.op.graph

    def find(self) -> GraphPiece | None:
        """The smallest piece that was found; None where no piece alone is outside. An interrupt ends it as well."""
        end = ""
        try:
            self._reduce()
        except _Spent:
            end = ", where the limit of compilations or of seconds ended the search"
        except KeyboardInterrupt:
            end = ", where an interrupt ended the search"
        if self._best is None:
            return None
        count = f"{quantity(self._best.operations, 'operation')} of {len(self._operations())}"
        return replace(self._best, about=f"{count}, found in {quantity(self._tries - self._left, 'compilation')}{end}")

    def _reduce(self) -> None:
        values = self._values()
        every = self._operations()
        wrong = self._judge.hold(self._call).wrong
        cone = self._behind(every, None if wrong is None else wrong.outlier)
        if self._is_outside(*self._cut(cone, values)) or (
            cone != every and self._is_outside(*self._cut(every, values))
        ):
            start = cone if self._best is not None and self._best.operations == len(cone) else every
            reduce_items(start, lambda some: self._is_outside(*self._cut(some, values)))
            self._narrow()
            self._draw()

    def _values(self) -> dict[torch.fx.Node, Any]:
        """What every node of the graph gives in an eager run."""
        eager = torch.fx.Interpreter(self._whole, garbage_collect_values=False)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            if self._call.generator is not None:
                torch.set_rng_state(self._call.generator)
            eager.run(*[x.clone() if isinstance(x, Tensor) else x for x in self._call.leaves])
        return eager.env

    def _operations(self) -> list[torch.fx.Node]:
        """The nodes that a piece may have: they compute, and neither draw nor write."""
        nodes = (node for node in self._whole.graph.nodes if node.op == "call_function")
        return [
            node for node in nodes
            if node.target is not operator.getitem and not draws_numbers(node.target)
            and not getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        ]  # fmt: skip

    def _behind(self, every: Sequence[torch.fx.Node], outlier: Outlier | None) -> list[torch.fx.Node]:
        """The operations behind the result that is outside, as far as other results, from which its reading went on."""
        if outlier is None:
            return list(every)
        results = self._call.op.result_nodes
        reached: set[torch.fx.Node] = set()
        ahead = [results[self._call.op.names.index(outlier.output)]]
        while ahead:
            node = ahead.pop()
            reached.add(node)
            ahead += [x for x in node.all_input_nodes if x not in reached and x not in results]
        return [node for node in every if node in reached]

    def _cut(
        self, nodes: Sequence[torch.fx.Node], values: dict[torch.fx.Node, Any]
    ) -> tuple[torch.fx.GraphModule, tuple[Tensor, ...]]:  # fmt: skip
        """These operations as a graph of its own, and its inputs."""
        graph, copies, inside = torch.fx.Graph(), dict[torch.fx.Node, Any](), set(nodes)
        operands = dict.fromkeys(x for node in nodes for x in node.all_input_nodes if not inside & {x, whole_of(x)})
        tensors = [x for x in operands if isinstance(values[x], Tensor)]
        copies |= {x: graph.placeholder(f"x{i}") for i, x in enumerate(tensors)}
        copies |= {x: values[x] for x in operands if x not in copies}  # sizes

        def copy_of(node: torch.fx.Node) -> Any:
            if node not in copies:  # a part of several results
                copies[node] = graph.node_copy(node, copy_of)
            return copies[node]

        for node in nodes:
            copy_of(node)
        outputs = []
        for node in nodes:
            parts = [user for user in node.users if user.target is operator.getitem] or [node]
            is_last = all(user not in inside for part in parts for user in part.users)
            # From results of the whole graph the reading goes on, so that a bound stays as narrow as it was.
            ends = [part for part in parts if is_last or part in self._call.op.result_nodes]
            outputs += [copy_of(part) for part in ends if is_floating(values[part])]
        graph.output(tuple(outputs))
        return torch.fx.GraphModule(torch.nn.Module(), graph), tuple(values[x] for x in tensors)

    def _is_outside(self, graph: torch.fx.GraphModule, inputs: Sequence[Tensor], seed: int | None = None) -> bool:
        """Whether a piece is outside; the smallest so far is remembered."""
        if not self._left or time.monotonic() > self._end:
            raise _Spent
        self._left -= 1
        outlier = None
        with contextlib.suppress(Exception):  # of a compiler that is handed whatever a piece is
            outlier = self._outlier_of(graph, inputs)
        if outlier is None:
            return False
        count = len([n for n in graph.graph.nodes if n.op == "call_function" and n.target is not operator.getitem])
        self._best = GraphPiece(graph, tuple(inputs), outlier, seed, count)
        return True

    def _outlier_of(self, graph: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> Outlier | None:
        region = GraphRegion("piece", graph)
        if not region.result_nodes:
            return None
        with torch.no_grad():
            results = self._compile(graph.forward)(*[x.clone() for x in inputs])
        leaves, structure = pytree.tree_flatten((tuple(inputs), {}))
        call = replace(
            self._call, op=region, leaves=tuple(leaves), structure=structure, results=tuple(tensors_in(results)),
            adjoints=[], tracked=[], generator=None,
        )  # fmt: skip
        wrong = self._judge.hold(call).wrong
        if wrong is None or wrong.outlier is None:
            return None
        return replace(wrong.outlier, number=region.names.index(wrong.outlier.output))

    def _narrow(self) -> None:
        """Take of each size of the inputs as few elements, around the worst one, as leave the piece outside."""
        best = self._best
        assert best is not None
        for size in sorted({n for x in best.inputs for n in x.shape if n > 1}, reverse=True):
            for graph, inputs in _narrowed(self._best or best, size):
                if self._is_outside(graph, inputs):
                    break

    def _draw(self) -> None:
        """Take drawn numbers in place of values that are too many to be read."""
        best = self._best
        assert best is not None
        if sum(x.numel() for x in best.inputs) > READABLE and all(x.dtype.is_floating_point for x in best.inputs):
            any(self._is_outside(best.graph, draw_like(best.inputs, seed), seed) for seed in range(_SEEDS))


def draw_like(inputs: Sequence[Tensor], seed: int) -> tuple[Tensor, ...]:
    """Normal numbers of the same shapes and dtypes."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(x.shape, generator=generator).to(x.device, x.dtype) for x in inputs)


def _narrowed(piece: GraphPiece, size: int) -> Iterator[tuple[torch.fx.GraphModule, tuple[Tensor, ...]]]:
    """A piece with fewer elements along all axes of a size: the shortest first."""
    node = next(iter(piece.graph.graph.find_nodes(op="output"))).args[0][piece.outlier.number]
    shape = tuple(getattr(node.meta.get("val"), "shape", ()))
    index = next((i for i, n in zip(piece.outlier.index, shape, strict=False) if n == size), 0)
    length = 1
    while length < size:
        start = min(index // length * length, size - length)

        def shorten(value: Any, length: int = length) -> Any:
            sizes = isinstance(value, (list, tuple)) and all(isinstance(n, int) for n in value)
            return [length if n == size else n for n in value] if sizes else value

        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(piece.graph.graph, {}))
        for each in graph.nodes:
            if each.op == "call_function":
                each.args = tuple(map(shorten, each.args))
        inputs = piece.inputs
        for axis in range(max(x.dim() for x in inputs)):
            inputs = tuple(
                x.narrow(axis, start, length) if axis < x.dim() and x.shape[axis] == size else x for x in inputs
            )
        yield torch.fx.GraphModule(torch.nn.Module(), graph), tuple(x.clone() for x in inputs)
        length *= 2


def reduce_items(items: list[Any], is_enough: Callable[[list[Any]], bool]) -> list[Any]:
    """Items of which none can be left out: delta debugging, by chunks that become smaller."""
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [items[i : i + size] for i in range(0, len(items), size)]
        rests = [[x for j, chunk in enumerate(chunks) if j != i for x in chunk] for i in range(len(chunks))]
        smaller = next((some for some in (*chunks, *(rests if parts > 2 else ())) if is_enough(some)), None)
        if smaller is not None:
            parts = 2 if smaller in chunks else max(parts - 1, 2)
            items = smaller
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(items))
    return items
