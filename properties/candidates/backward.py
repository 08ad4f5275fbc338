"""The spec's own backward, run by torch: what it gives gradients of, and what torch refuses.

What this is for: a candidate owes the gradients that the spec gives by itself. torch gives none of a running mean, or
of what was written after autograd had saved it; nobody can ask a candidate for those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .arguments import CallArguments, State, Tensor, copied_state
from .host.calls import floating
from .results import result_of
from .specification import Specification


@dataclass(frozen=True)
class SpecBackward:
    """What torch gives as gradients of a spec.

    Attributes:
        gradients: by operand, which is the position of a floating argument among those, or the name of a parameter;
            None where no output depends on it.
        refused: why torch gives none, by operand.
    """

    gradients: Mapping[int | str, Tensor | None]
    refused: Mapping[int | str, str] = field(default_factory=dict)


#: A function of a state and arguments.
Called = Callable[[dict[str, Tensor], tuple[Any, ...]], Any]


def backward(
    spec: Specification,
    arguments: CallArguments,
    state: State,
    operands: Sequence[int | str],
    cotangents: Sequence[Tensor],
) -> SpecBackward:
    """Run a spec's backward, on copies.

    Args:
        spec: of torch. arguments, state: where it is run. operands: as for `SpecBackward.gradients`, at least one.
        cotangents: one for each floating output.
    """
    whole = tried(spec.called, arguments, state, operands, cotangents)
    if not isinstance(whole, str):
        return SpecBackward(whole)
    alone = {operand: tried(spec.called, arguments, state, [operand], cotangents) for operand in operands}
    refused = {operand: answer for operand, answer in alone.items() if isinstance(answer, str)}
    rest = [operand for operand in operands if operand not in refused]
    together = tried(spec.called, arguments, state, rest, cotangents) if rest else {}
    if isinstance(together, str):
        return SpecBackward({}, dict.fromkeys(operands, together) | refused)
    return SpecBackward(together, refused)


def tried(
    called: Called, arguments: CallArguments, state: State, operands: Sequence[int | str], cotangents: Sequence[Tensor]
) -> dict[int | str, Tensor | None] | str:
    """The gradients, or what torch says in their place; other arguments as for `backward`."""
    own_arguments, own_state = arguments.copied(), copied_state(state)
    inputs = floating(own_arguments.tensors)
    leaves = [own_state[operand] if isinstance(operand, str) else inputs[operand] for operand in operands]
    try:
        with torch.enable_grad():
            for leaf in leaves:
                leaf.requires_grad_(True)
            outputs = floating(result_of(called(own_state, own_arguments.args)).tensors)[: len(cotangents)]
        tracked = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
        if not tracked:
            return dict.fromkeys(operands)
        targets, weights = [y for y, _ in tracked], [g for _, g in tracked]
        gradients = torch.autograd.grad(targets, leaves, weights, allow_unused=True)
    except Exception as err:
        return str(err).strip().partition("\n")[0].partition(";")[0][:200] or type(err).__name__
    return dict(zip(operands, gradients, strict=True))
