"""Loops S <- exp(x_t) S + b_t with decays, and kernels that compute them by chunks, with exp(G_i - G_j), G = cumsum(x).

docs/design/tolerance.md derives their rounding errors ("Loops that kernels compute as scans").
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
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
from ...oracles.specs.node_facts import name_of
from .arguments import CallArguments, State
from .rewrites import MOVES, Rewritten
from .specification import Specification

#: Operations that bring one of several decays to its step; and those that make decays, with their logarithms.
_PLACES = (*MOVES, "select", "slice", "unbind", "split", "split_with_sizes")
_LOGARITHMS: dict[str, Callable[[Tensor], Tensor]] = {"exp": lambda x: x, "sigmoid": torch.nn.functional.logsigmoid}


def read_values(
    spec: Specification, arguments: CallArguments, state: State, terms: Terms, sharp: bool
) -> tuple[Reading, ...]:
    """The balls of `Specification.read`; of a loop with decays, with the errors of a kernel by chunks."""
    readings = spec.read(arguments, state, terms, sharp)
    if terms.algorithms is None or not has_decays(spec, arguments, state):
        return readings
    others = spec.with_trace(_text_of(spec, arguments, state, pairs=False)).read(arguments, state, terms)
    return tuple(map(functools.partial(_widened, exact=sharp), readings, others))


def read_gradients(
    spec: Specification, arguments: CallArguments, state: State, terms: Terms, wanted: Sequence[int],
    cotangents: Sequence[Tensor], picks: Mapping[str, Any],
) -> tuple[Reading, ...]:  # fmt: skip
    """The balls of `Specification.gradients`; of a loop with decays, with the errors of a kernel by chunks."""
    these = (arguments, state, terms, wanted, cotangents, picks)
    readings = spec.gradients(*these)
    if terms.algorithms is None or not has_decays(spec, arguments, state):
        return readings
    pairs = not _operands_of(spec, arguments, state).isdisjoint(wanted)
    others = spec.with_trace(_text_of(spec, arguments, state, pairs)).gradients(*these)
    return tuple(map(_widened, readings, others))


def has_decays(spec: Specification, arguments: CallArguments, state: State) -> bool:
    """Whether a spec is a loop with decays, of which kernels by chunks have other rounding errors."""
    return not spec.numpy and bool(_steps_of(spec.traced_at(arguments, state).graph))


def leave_decays_out(
    outcomes: Sequence[Standing], positions: Sequence[int], spec: Specification, arguments: CallArguments, state: State
) -> tuple[Standing, ...]:
    """The standings of gradients; without their balls where decays of a loop depend on the operands at the positions.

    Errors of a kernel by chunks are not those of any evaluation of the loop, with which LIKELY would compare them.
    """
    operands = _operands_of(spec, arguments, state)
    rows = zip(positions, outcomes, strict=True)
    return tuple(replace(one, ball=None) if at in operands else one for at, one in rows)


def _text_of(spec: Specification, arguments: CallArguments, state: State, pairs: bool) -> Traced:
    """A spec whose decays have the errors of running sums; with `pairs`, as the class below says."""
    traced = spec.traced_at(arguments, state)
    texts = traced.graph.meta.setdefault("texts", {})
    if pairs not in texts:
        run = functools.partial(_ByChunks(traced.graph, pairs).run, enable_io_processing=False)
        texts[pairs] = rewritten(traced, run, [t.detach() for t in (*state.values(), *arguments.tensors)])
    return texts[pairs]  # type: ignore[no-any-return]


def _operands_of(spec: Specification, arguments: CallArguments, state: State) -> set[int]:
    """The numbers of the operands that decays depend on."""
    if spec.numpy:
        return set()
    graph = spec.traced_at(arguments, state).graph
    every = _made_of([step.decay for step in _steps_of(graph).values()])
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return {number for number, node in enumerate(places) if node in every}


def _widened(own: Reading, other: Reading, exact: bool = False) -> Reading:
    """A ball with the radius of another, if that is larger; `exact`: where it has one at all."""
    if not isinstance(own, Ball) or not isinstance(other, Ball):
        return own
    with np.errstate(invalid="ignore"):
        radius = np.abs(other.centre - own.centre) + other.radii()
    wide = copy.copy(own)
    radius = np.where((own.radii() == 0) & exact, 0.0, radius)
    wide.radius = np.where(np.isnan(radius) & ~np.isnan(own.radii()), np.inf, np.maximum(radius, own.radii()))
    return wide


class _DecayStep(NamedTuple):
    """A product of a state and its decay.

    Attributes:
        decay: an exponential, say. moves: the nodes from it to the factor. place: of the factor in the product.
        chain: the products of the loop up to this one.
    """

    decay: Node
    moves: list[Node]
    place: int
    chain: tuple[Node, ...]


def _steps_of(graph: GraphModule) -> dict[Node, _DecayStep]:
    """The products of states and decays, where one state is made of another."""
    if "decays" in graph.meta:
        return graph.meta["decays"]  # type: ignore[no-any-return]
    steps: dict[Node, _DecayStep] = {}
    last: dict[Node, tuple[Node, ...]] = {}  # of a node: the longest chain of these that it depends on
    for node in graph.graph.nodes:
        before = max((last[each] for each in node.all_input_nodes if each in last), key=len, default=())
        if before:
            last[node] = before
        if name_of(node) != "mul" or len(node.all_input_nodes) != 2:
            continue
        for place, (factor, state) in enumerate((node.args, node.args[::-1])):
            moves: list[Node] = []
            while (name_of(factor) in _PLACES or factor.target is operator.getitem) and factor.all_input_nodes:
                moves.insert(0, factor)
                factor = factor.all_input_nodes[0]
            if name_of(factor) in _LOGARITHMS and name_of(state) not in _LOGARITHMS and factor not in last:
                last[node] = (*last.get(state, ()), node)
                steps[node] = _DecayStep(factor, moves, place, last[node])
                break
    followed = {product for step in steps.values() if len(step.chain) > 1 for product in step.chain}
    graph.meta["decays"] = {node: step for node, step in steps.items() if node in followed}
    return graph.meta["decays"]  # type: ignore[no-any-return]


class _ByChunks(Rewritten):
    """Runs a loop whose decays have the errors of running sums; with `pairs`, the addends of its states have the factor
    of a decay from a step to itself, which is one.
    """

    def __init__(self, graph: GraphModule, pairs: bool) -> None:
        super().__init__(graph, {})
        self.steps, self.pairs = _steps_of(graph), pairs
        self.errors: dict[Node, Any] = {}  # of products of the loop: a number around zero, within d_r of it
        self.zeros: dict[Node, Any] = {}  # and z

    def run(self, *operands: Tensor, **options: Any) -> Any:
        """The outputs of the graph; decays, which depend on no state, are computed ahead of the loop."""
        ahead = _made_of([move for step in self.steps.values() for move in (step.decay, *step.moves)])
        self.args_iter, self.env = iter(operands), {}
        for node in self.graph.nodes:
            if node.op == "placeholder" or node in ahead:
                self.env[node] = self.run_node(node)
        moved: dict[Node, Any] = {}
        for product, step in sorted(self.steps.items(), key=lambda item: -len(item[1].chain)):
            if product in self.errors:
                continue  # It is in the chain of another.
            logarithms = {each: self._logarithm(self.steps[each], moved) for each in step.chain}
            chain = [each for each, x in logarithms.items() if x.shape == logarithms[product].shape]
            rows = torch.stack([logarithms[each] for each in chain])
            self.errors.update(zip(chain, _errors_of(rows).unbind(0), strict=True))
            self.zeros.update(zip(chain, (rows - rows).cumsum(0).unbind(0), strict=True))
        return super().run(*operands, initial_env=self.env, **options)

    def _logarithm(self, step: _DecayStep, moved: dict[Node, Any]) -> Any:
        """Of a decay as it comes to its product; `moved`: what is a logarithm in place of a node, so far."""
        x = _LOGARITHMS[name_of(step.decay)](self.env[step.decay.all_input_nodes[0]])
        for move in step.moves:
            if move not in moved:
                moved[move] = move.target(x, *move.args[1:], **move.kwargs)  # type: ignore[operator]
            x = moved[move]
        return x

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        node, operands = self._node, self._node.all_input_nodes
        if node in self.steps:
            place = self.steps[node].place
            factor = args[place] + args[place] * torch.expm1(self.errors[node])
            return target(*args[:place], factor, *args[place + 1 :], **kwargs)
        at = [i for i, each in enumerate(operands) if each in self.steps]
        if not self.pairs or name_of(node) != "add" or len(operands) != 2 or len(at) != 1:
            return super().call_function(target, args, kwargs)
        addend = args[1 - at[0]]
        return target(args[at[0]], addend + addend * self.zeros[operands[at[0]]].to(addend.dtype), **kwargs)


def _errors_of(logarithms: Tensor) -> Tensor:
    """Numbers around zero, within d_r of it: (steps, ...) -> (steps, ...)."""
    sizes = logarithms.detach().to(torch.promote_types(logarithms.dtype, torch.float32)).abs().cumsum(0)
    unit = torch.finfo(sizes.dtype).eps / 2
    heights = [2 * unit * (1 + math.ceil(math.log2(r))) for r in range(1, len(sizes) + 1)]
    scales = sizes.new_tensor(heights).reshape(-1, *[1] * (sizes.ndim - 1))
    # A cast to bfloat16 and back is off by 2^-8 of a number, and what it is off by is around zero.
    return ((sizes.bfloat16().to(sizes) - sizes) * 2.0**8 * scales).to(logarithms.dtype)


def _made_of(nodes: Sequence[Node]) -> set[Node]:
    """These nodes, and all that they depend on."""
    every, rest = set(nodes), list(nodes)
    while rest:
        new = set(rest.pop().all_input_nodes) - every
        every |= new
        rest += new
    return every
