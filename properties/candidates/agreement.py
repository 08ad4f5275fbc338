"""Whether what was read of a spec is what torch runs of it.

What this is for: a spec is read as the operations that torch traces. What it computes elsewhere, in NumPy or from a
counter of its own, stands in the trace as the numbers of one moment, and bounds made of those say nothing.

What is hard here: torch's own evaluation may be outside of right bounds, too. So a spec is refused only where what was
traced, run by torch, is inside, and the spec itself is outside in float64 as well: then these are two functions.

And infinities that meet give a NaN or an infinity by the order in which they meet, so of a sum or a product of matrices
nobody can ask for torch's own. Of x + 1 one can, because there is nothing to reorder. A candidate owes the gradients
that the spec gives by itself; torch gives none of a running mean, or of what was written after autograd had saved it.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.bound.rounding import Ball
from ...oracles.bound.rounding.casts import cast_ball
from ...oracles.bound.terms import Terms
from ...oracles.judge.holding import OperandFacts, Reading
from ...oracles.op.declaration import is_float, to_array
from ...oracles.specs.storage import format_of, is_computed_in
from .arguments import Args, CallArguments, State, Tensor, copied_state, floating
from .comparing import hold_all
from .results import SpecRun, result_of
from .specification import SpecError, Specification

_ATEN = torch.ops.aten
#: Operations that move elements, or round them to another dtype.
_MOVES = frozenset(
    {_ATEN.view, _ATEN.reshape, _ATEN._unsafe_view, _ATEN.expand, _ATEN.permute, _ATEN.transpose, _ATEN.t, _ATEN.alias}
    | {_ATEN.squeeze, _ATEN.unsqueeze, _ATEN.slice, _ATEN.select, _ATEN.cat, _ATEN.copy, _ATEN._to_copy, _ATEN.clone}
)
#: A function of a state and arguments.
StatefulCall = Callable[[dict[str, Tensor], Args], Any]


@dataclass(frozen=True)
class SpecBackward:
    """What torch gives as gradients of a spec.

    Attributes:
        gradients: by operand, which is the position of a floating argument among those, or the name of a parameter;
            None where no output depends on it.
        refusals: why torch gives none, by operand.
    """

    gradients: Mapping[int | str, Tensor | None]
    refusals: Mapping[int | str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TorchEvaluations:
    """What torch computes of one text: values, or gradients. Each but the first is computed where it is asked for.

    Attributes:
        own: of the spec. again: of the spec once more. replayed: of the operations that were traced.
        in_double: of the spec in float64. None for what torch does not run.
        facts: what is known of the operands. order: of the derivative.
    """

    own: Sequence[Tensor]
    again: Callable[[], Sequence[Tensor] | None]
    replayed: Callable[[], Sequence[Tensor] | None]
    in_double: Callable[[], Sequence[Tensor] | None]
    facts: OperandFacts
    order: int = 0


class Disagreement(enum.Enum):
    """Why torch's own evaluation is outside of the bounds that were read."""

    CHANGES = enum.auto()  # the spec gives something else when it is run again
    OTHER = enum.auto()  # what was read is another function


def fault(evaluations: TorchEvaluations, balls: Sequence[Reading]) -> Disagreement | None:
    """What is wrong with a reading by torch's `evaluations`; None where torch is inside, or is wrong itself."""

    def are_outside(outputs: Sequence[Tensor] | None) -> bool | None:
        if outputs is None or len(outputs) != len(balls):
            return None
        names, facts = [""] * len(balls), evaluations.facts
        return any(each.wrong for each in hold_all(names, outputs, balls, None, None, facts, evaluations.order))

    if not are_outside(evaluations.own):
        return None
    again = evaluations.again()
    if again is not None and any(map(_differ, evaluations.own, again, balls)):
        return Disagreement.CHANGES
    # Operations of torch that are outside by themselves say nothing of the reading, nor does a spec that float64 mends.
    return (
        Disagreement.OTHER
        if are_outside(evaluations.replayed()) is False and are_outside(evaluations.in_double())
        else None
    )


def disagreement(
    spec: Specification, arguments: CallArguments, run: SpecRun, reader: Callable[[Terms], Sequence[Reading]],
    terms: Terms,
) -> str:  # fmt: skip
    """Why the values that were read of a spec are not what torch runs of it; empty where they are.

    Args:
        spec, arguments: what was read, with its own state, and where. run: what torch computes there.
        reader: the readings under some terms. terms: what is allowed.
    """
    if spec.numpy:
        return ""
    count, state = len(run.outputs), spec.state

    def replayed() -> Sequence[Tensor] | None:
        with contextlib.suppress(Exception), torch.no_grad():  # of what is meant to be read alone
            own = copied_state(state)
            outputs: Sequence[Tensor] = as_traced(spec, arguments, state)(own, arguments.copied().args)
            return outputs[:count]
        return None

    def in_double() -> Sequence[Tensor] | None:
        with contextlib.suppress(SpecError):
            return spec.run(arguments.changed(doubled), {name: doubled(t) for name, t in state.items()}).outputs
        return None

    evaluations = TorchEvaluations(
        run.outputs,
        lambda: spec.run(arguments, state).outputs,
        replayed,
        in_double,
        operands_of(spec, arguments, state),
    )
    for allowed in (terms.of_text_alone, terms):  # other algorithms only widen a ball, as in `hold_in_turn`
        why = fault(evaluations, list(reader(allowed))[:count])
        if why is None:
            return ""
    if why is Disagreement.CHANGES:
        return (
            f"{spec.name} gives other values when it is called again with the same inputs: it draws numbers, or counts"
            " its calls; hand in what it draws, or counts, as an argument"
        )
    return (
        f"{spec.name} gives other values than its operations as they were read: it computes outside of torch, or asks"
        " what a trace answers otherwise; write that in torch, or hand it in as an argument"
    )


def as_traced(spec: Specification, arguments: CallArguments, state: State) -> Callable[[State, Args], Any]:
    """The operations that were traced as a function of a state and arguments like these, run by torch."""
    graph = spec.traced_at(arguments, state).graph

    def run(state: State, args: Args) -> Any:
        tensors = (*state.values(), *CallArguments.of(args).tensors)
        return torch.fx.Interpreter(graph).run(*tensors, enable_io_processing=False)

    return run


def doubled(tensor: Tensor) -> Tensor:
    """The same in float64 where it is floating."""
    return tensor.detach().double() if is_float(tensor) else tensor


def _differ(first: Tensor, other: Tensor, ball: Reading) -> bool:
    """Whether two outputs of one spec, of the same inputs, are farther apart than the radius of their ball.

    A change of the order of additions explains so much. Without a bound, the radius NaN or infinite, no distance
    is too large. Of integers and truth values every difference counts.
    """
    if first.shape != other.shape or first.dtype != other.dtype:
        return True
    if not isinstance(ball, Ball):
        return not torch.equal(first, other)
    one, two = to_array(first), to_array(other)
    ball = ball if is_computed_in(first.dtype) else cast_ball(ball.contract, ball, format_of(first.dtype))
    with np.errstate(all="ignore"):
        same = (one == two) | (np.isnan(one) & np.isnan(two)) | ~(np.abs(one - two) > ball.radii())
    return not bool(np.all(same))


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


def backward(
    spec: Specification, arguments: CallArguments, state: State, operands: Sequence[int | str],
    cotangents: Sequence[Tensor],
) -> SpecBackward:  # fmt: skip
    """Run a spec's backward, on copies.

    Args:
        spec: of torch. arguments, state: where it is run. operands: as for `SpecBackward.gradients`, at least one.
        cotangents: one for each floating output.
    """
    whole = torch_gradients(spec.call_at, arguments, state, operands, cotangents)
    if not isinstance(whole, str):
        return SpecBackward(whole)
    alone = {operand: torch_gradients(spec.call_at, arguments, state, [operand], cotangents) for operand in operands}
    refusals = {operand: answer for operand, answer in alone.items() if isinstance(answer, str)}
    rest = [operand for operand in operands if operand not in refusals]
    together = torch_gradients(spec.call_at, arguments, state, rest, cotangents) if rest else {}
    if isinstance(together, str):
        return SpecBackward({}, dict.fromkeys(operands, together) | refusals)
    return SpecBackward(together, refusals)


def torch_gradients(
    call: StatefulCall, arguments: CallArguments, state: State, operands: Sequence[int | str],
    cotangents: Sequence[Tensor],
) -> dict[int | str, Tensor | None] | str:  # fmt: skip
    """The gradients, or what torch says in their place; other arguments as for `backward`."""
    own_arguments, own_state = arguments.copied(), copied_state(state)
    inputs = floating(own_arguments.tensors)
    leaves = [own_state[operand] if isinstance(operand, str) else inputs[operand] for operand in operands]
    try:
        with torch.enable_grad():
            for leaf in leaves:
                leaf.requires_grad_(True)
            outputs = floating(result_of(call(own_state, own_arguments.args)).tensors)[: len(cotangents)]
        tracked = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
        if not tracked:
            return dict.fromkeys(operands)
        targets, weights = [y for y, _ in tracked], [g for _, g in tracked]
        gradients = torch.autograd.grad(targets, leaves, weights, allow_unused=True)
    except Exception as err:
        return str(err).strip().partition("\n")[0].partition(";")[0][:200] or type(err).__name__
    return dict(zip(operands, gradients, strict=True))
