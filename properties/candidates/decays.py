"""Gradients of logarithms of decays that are next to nothing in a loop, and rounding errors of kernels by chunks.

What this is for. A loop has S <- exp(x_t) S + b_t. A kernel by chunks has G = cumsum(x) and the matrix exp(G_i - G_j).
The gradient of x_t is, from that matrix, the sum of those of G_t, G_t+1, ...; each of these has all terms of the pairs
(t, j), less all of the pairs (i, t). A pair that does not straddle t comes twice, and cancels. In the loop it does not
come at all: the gradient of x_0, whose decay meets a state of zeros, is exactly zero there, and that of a strong decay
is as small as the decay.

The rule. All pairs (i, t) together are e_t = <b_t, adjoint of the state>, and a kernel may compute them by rows of the
matrix and by columns, in two products, each with the errors of e_t in any order. So the loop is read once more with
b_t (1 + z_t) in place of b_t, where z is the running sum of the zeros x_t - x_t: e_t comes to each of x_0 ... x_t with
both signs. The radius has twice that of each e_t, and the additions of all of them. Gradients of what decays are made
of have it; all others have that of the loop.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms
from ...oracles.judge.holding import Reading, Standing
from ...oracles.specs import Traced, rewritten
from .arguments import CallArguments, State
from .rewrites import MOVES, Rewritten, name_of
from .specification import Specification

#: By graphs: the other text, None for one without such a loop, and the operands of decays by number.
_KNOWN: weakref.WeakKeyDictionary[GraphModule, tuple[Traced | None, set[int]]] = weakref.WeakKeyDictionary()


def read_gradients(
    spec: Specification, arguments: CallArguments, state: State, terms: Terms, wanted: Sequence[int],
    cotangents: Sequence[Tensor], picks: Mapping[str, Any],
) -> tuple[Reading, ...]:  # fmt: skip
    """The balls of `Specification.gradients`; of decays, with the errors of a kernel by chunks."""
    these = (arguments, state, terms, wanted, cotangents, picks)
    readings = spec.gradients(*these)
    text, operands = (None, set[int]()) if terms.algorithms is None else _text_with_pairs(spec, arguments, state)
    if text is None or operands.isdisjoint(wanted):
        return readings
    others = spec.with_trace(text).gradients(*these)
    return tuple(
        _widened(*each) if number in operands else each[0]
        for number, each in zip(wanted, zip(readings, others, strict=True), strict=True)
    )


def has_decays(spec: Specification, arguments: CallArguments, state: State) -> bool:
    """Whether a spec is a loop with decays, of which kernels by chunks have other rounding errors."""
    return not spec.numpy and _text_with_pairs(spec, arguments, state)[0] is not None


def leave_decays_out(
    outcomes: Sequence[Standing], positions: Sequence[int], spec: Specification, arguments: CallArguments, state: State
) -> tuple[Standing, ...]:
    """The standings of gradients; without their balls where decays of a loop depend on the operands at the positions.

    Errors of a kernel by chunks are not those of any evaluation of the loop, with which LIKELY would compare them.
    """
    _, operands = _text_with_pairs(spec, arguments, state)
    rows = zip(positions, outcomes, strict=True)
    return tuple(replace(one, ball=None) if at in operands else one for at, one in rows)


def _text_with_pairs(spec: Specification, arguments: CallArguments, state: State) -> tuple[Traced | None, set[int]]:
    """The spec with its pairs written out, None where it has no such loop, and the numbers of the decays' operands."""
    if spec.numpy:
        return None, set()
    traced = spec.traced_at(arguments, state)
    graph = traced.graph
    if graph not in _KNOWN:
        steps = _steps_of(graph)

        def run(*operands: Tensor) -> Any:
            return _WithPairs(graph, steps).run(*operands, enable_io_processing=False)

        tensors = [t.detach() for t in (*state.values(), *arguments.tensors)]
        _KNOWN[graph] = (rewritten(traced, run, tensors), _operands_of(graph, steps)) if steps else (None, set())
    return _KNOWN[graph]


def _operands_of(graph: GraphModule, steps: Mapping[Node, _DecayStep]) -> set[int]:
    """The numbers of the operands that decays depend on."""
    nodes = [decay for step in steps.values() for decay in step.decays]
    every = set(nodes)
    while nodes:
        new = set(nodes.pop().all_input_nodes) - every
        every |= new
        nodes += new
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return {number for number, node in enumerate(places) if node in every}


def _widened(own: Reading, other: Reading) -> Reading:
    if not isinstance(own, Ball) or not isinstance(other, Ball):
        return own
    radius = np.abs(other.centre - own.centre) + other.radii()
    wide = np.where(np.isfinite(radius), np.maximum(radius, own.radii()), own.radii())
    return Ball(own.centre, wide, own.contract, own.special)


class _DecayStep(NamedTuple):
    """A product of a state and its decay.

    Attributes:
        decays: the exponentials of the loop up to this one. moves: the nodes from it to the factor.
    """

    decays: tuple[Node, ...]
    moves: list[Node]


def _steps_of(graph: GraphModule) -> dict[Node, _DecayStep]:
    """The products of states and decays, where one state is made of another."""
    steps: dict[Node, _DecayStep] = {}
    last: dict[Node, tuple[Node, ...]] = {}  # of a node: the decays of the latest of these that it depends on
    for node in graph.graph.nodes:
        before = max((last[each] for each in node.all_input_nodes if each in last), key=len, default=())
        if before:
            last[node] = before
        if name_of(node) != "mul" or len(node.all_input_nodes) != 2:
            continue
        for factor, state in (node.all_input_nodes, node.all_input_nodes[::-1]):
            moves: list[Node] = []
            while name_of(factor) in MOVES and factor.all_input_nodes:
                moves.insert(0, factor)
                factor = factor.all_input_nodes[0]
            if name_of(factor) == "exp" and name_of(state) != "exp" and factor not in last:
                last[node] = (*last.get(state, ()), factor)
                steps[node] = _DecayStep(last[node], moves)
                break
    followed = {decay for step in steps.values() if len(step.decays) > 1 for decay in step.decays}
    return {node: step for node, step in steps.items() if step.decays[-1] in followed}


class _WithPairs(Rewritten):
    """Runs a loop whose addends have the factor of a decay from a step to itself, which is one."""

    def __init__(self, graph: GraphModule, steps: Mapping[Node, _DecayStep]) -> None:
        super().__init__(graph, {})
        self.steps = steps
        self.zeros: dict[Node, Any] = {decay: None for step in steps.values() for decay in step.decays}

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        node, operands = self._node, self._node.all_input_nodes
        if node in self.zeros:
            self.zeros[node] = args[0] - args[0]
        at = [i for i, each in enumerate(operands) if each in self.steps]
        if name_of(node) != "add" or len(operands) != 2 or len(at) != 1:
            return super().call_function(target, args, kwargs)
        step, addend = self.steps[operands[at[0]]], args[1 - at[0]]
        own: Any = self.zeros[step.decays[-1]]
        zeros = [each for each in map(self.zeros.get, step.decays) if each is not None and each.shape == own.shape]
        zero = torch.stack(zeros).cumsum(0)[-1].to(addend.dtype)
        for move in step.moves:
            zero = move.target(zero, *move.args[1:], **move.kwargs)  # type: ignore[operator]
        return target(args[at[0]], addend + addend * zero, **kwargs)
