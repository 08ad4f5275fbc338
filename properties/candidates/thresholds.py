"""Inputs at which the steps of a spec decide: what it rounds, casts or compares is put on a threshold, or next to one.

A step is an operation whose result jumps: a sign, a comparison, a rounding to integers, a cast to few bits. Somebody's
function that rounds otherwise, or that compares what is computed in another order, differs from the spec only there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ...oracles.specs.rules.table import overloads
from ...oracles.specs.storage import format_of
from ...reference.formats import round_array
from .arguments import Tensor
from .inputs import Way

_aten = torch.ops.aten
_COMPARISONS = set(overloads("gt.Scalar ge.Scalar lt.Scalar le.Scalar gt.Tensor ge.Tensor lt.Tensor le.Tensor"))
#: Operations that jump at integers, and all that jump.
_WHOLE = {_aten.floor.default, _aten.ceil.default, _aten.trunc.default}
_STEPS = {_aten.sign.default, _aten.round.default, *_COMPARISONS, *_WHOLE}
#: Operations with a constant that may be the largest number of a quantisation.
_WITH_LIMITS = {_aten.div.Tensor, _aten.clamp.default, _aten.clamp_max.default}
_SMALLEST = {_aten.amin.default, _aten.aminmax.default, _aten.min.default, _aten.min.dim}


def largest_numbers(graph: torch.fx.GraphModule) -> list[float]:
    """The constants of a graph by which the largest number of a row may be divided so that integers come of the row.

    Where the least number of a row is taken as well, the constant is the distance of both.
    """
    nodes = graph.graph.nodes
    numbers = [x for node in nodes if node.target in _WITH_LIMITS for x in node.args[1:] if isinstance(x, (int, float))]
    whole = {float(x) for x in numbers if 1 < x < 2.0**16 and x == int(x)}
    both_ends = any(node.target in _SMALLEST for node in nodes)
    return sorted(x / 2 if both_ends else x for x in whole)


def exact_ties_of(ladder: Any, largest: float, count: int) -> Way:
    """Numbers of a ladder and the middles of two of them; along every axis, each second number is the largest one.

    So a row that is divided by its largest number over `largest` is divided by 1. A smaller tensor, which may hold the
    scales, gets powers of two. What orders of evaluation disagree about is left out: x / c * c is not x for all x, and
    x * c may have more digits than the tensor.

    Args:
        ladder: the numbers of a format, in ascending order. largest: of them, or the constant that scales divide by.
        count: how many elements the largest tensor has.
    """
    inside = ladder[np.abs(ladder) <= largest]
    both = np.concatenate([inside, (inside[1:] + inside[:-1]) / 2]).astype(np.float32)
    c = np.float32(largest)
    values = both[(both / c * c == both) & (both * (1 / c) * c == both)].astype(np.float64)

    def way(tensor: Tensor, rng: Any) -> Any:
        size = tuple(tensor.shape)
        if tensor.numel() < count:
            return np.exp2(rng.integers(-1, 2, size))
        usable = values[round_array(format_of(tensor.dtype), values * largest) == values * largest]
        is_largest = np.indices(size).sum(axis=0) % 2 == 0 if size else np.zeros((), dtype=bool)
        return np.where(is_largest, largest * rng.choice([-1.0, 1.0], size), rng.choice(usable, size))

    return way


class _Capture(torch.fx.Interpreter):
    """What the steps of a graph decide by, an argument or the difference of the two that are compared, and by which the
    argument is rounded: to the next middle of two integers, to an integer, to a power of two whose logarithm is one, or
    None for a sign.
    """

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.extra_traceback = False
        self.arguments: list[tuple[Tensor, Tensor | None]] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in _STEPS or target is _aten.log2.default:
            argument = args[0] - args[1] if target in _COMPARISONS else args[0]
            if isinstance(argument, torch.Tensor) and argument.requires_grad:
                u = argument.detach().double()
                goal = u.floor() + 0.5 if target is _aten.round.default else u.round() if target in _WHOLE else None
                goal = u.log2().round().exp2() if target is _aten.log2.default else goal
                self.arguments.append((argument, goal))
        return super().call_function(target, args, kwargs)


def decides(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph takes signs, compares, or rounds to integers."""
    return any(node.target in _STEPS for node in graph.graph.nodes)


def move_to_thresholds(
    graph: torch.fx.GraphModule, operands: Sequence[Tensor], movable: Sequence[int], rng: Any
) -> list[Tensor]:
    """The operands of a graph, of which some elements are moved to where a step of the graph jumps, or next to it.

    An element is moved along the slope of what decides, as far as its tensor has numbers of that size.

    Args:
        graph, operands: of a spec. movable: which of the operands are moved. rng: what draws.
    """
    leaves = [t.detach().clone() for t in operands]
    wanted = [i for i in movable if leaves[i].dtype.is_floating_point and (leaves[i] != leaves[i].round()).any()]
    for i in wanted:
        leaves[i].requires_grad_()
    capture = _Capture(graph)
    with torch.enable_grad():
        capture.run(*leaves)
    results = [t.detach().clone() for t in leaves]
    ways, choices = list(_slopes(capture.arguments, leaves, wanted)), dict[torch.Size, Tensor]()
    for number, (i, u, goal, slope) in enumerate(ways):
        # To move two operands of one difference would miss its threshold, so each element goes one way.
        choice = choices.setdefault(u.shape, torch.from_numpy(np.array(rng.integers(len(ways), size=u.shape))))
        x, bits = operands[i].detach().double(), format_of(leaves[i].dtype).precision
        share = np.array(np.exp2(-rng.uniform(1, bits - 3, x.shape)) * rng.choice([-1.0, 0.0, 1.0], x.shape))
        goal = torch.from_numpy(share).to(x.device) * u if goal is None else goal
        new = x + (goal - u) / slope
        mantissa, exponent = torch.frexp(new)
        short = torch.ldexp((mantissa * 2.0 ** (bits - 5)).round() / 2.0 ** (bits - 5), exponent)
        # What the slope's rounding moved off a number of fewer bits, as most thresholds are.
        new = torch.where((short - new).abs() <= new.abs() * 2.0 ** (1 - bits), short, new)
        fits = (new >= x.min()) & (new <= x.max()) & (choice == number).to(x.device)
        results[i] = torch.where(fits, new.to(results[i].dtype), results[i])
    return results


def _slopes(
    arguments: Sequence[tuple[Tensor, Tensor | None]], leaves: Sequence[Tensor], wanted: Sequence[int]
) -> Iterator[tuple[int, Tensor, Tensor | None, Tensor]]:
    """For operands of the shape of what decides: their number, what decides, its goal, and its slope, in float64."""
    for u, goal in arguments:
        own = [i for i in wanted if leaves[i].shape == u.shape]
        for i in own:
            (slope,) = torch.autograd.grad(u.sum(), leaves[i], retain_graph=True, allow_unused=True)
            if slope is not None:
                yield i, u.detach().double(), goal, slope.double()
